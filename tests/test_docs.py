"""Every Python block of README.md and docs/ runs, page by page, and every link to a file leads to one."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RUN = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LONG = {  # a fit or an explanation in every block; left to the slow suite
    "README.md",
    "docs/how_to/aggregates.md",
    "docs/how_to/aggregate_likelihoods.md",
    "docs/how_to/bayesian_models.md",
    "docs/how_to/causal_optimization.md",
    "docs/how_to/causal_effects.md",
    "docs/how_to/causal_shapley.md",
    "docs/how_to/collider_regression.md",
    "docs/how_to/conversion.md",
    "docs/how_to/embeddings.md",
    "docs/how_to/explanations.md",
    "docs/how_to/features.md",
    "docs/how_to/gpec.md",
    "docs/how_to/i_have.md",
    "docs/how_to/grids.md",
    "docs/explanation/kriging.md",
    "docs/how_to/inference.md",
    "docs/explanation/interventional_embeddings.md",
    "docs/how_to/models.md",
    "docs/how_to/preferences.md",
    "docs/how_to/pref_shap.md",
    "docs/explanation/quadrature.md",
    "docs/how_to/rkhs_shap.md",
    "docs/how_to/scikit_learn.md",
    "docs/how_to/structural_models.md",
    "docs/how_to/studies.md",
    "docs/how_to/surrogates.md",
    "docs/how_to/treatment_effects.md",
}
READ = [*RUN, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def python_blocks(page: Path) -> list[tuple[int, str]]:
    """The line each ```python block starts on, and its code."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, match.start(1)), match[1]) for match in found]


def pages_with_code() -> list:
    pages = [page for page in RUN if python_blocks(page)]
    return [pytest.param(page, marks=[pytest.mark.slow] if page_name(page) in LONG else []) for page in pages]


@pytest.mark.parametrize("page", pages_with_code(), ids=page_name)
def test_the_python_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("docs_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look their own module up
    for line, code in python_blocks(page):
        # Blank lines in front make a traceback name the line of the page.
        exec(compile("\n" * line + code, str(page), "exec"), vars(module))


@pytest.mark.parametrize("page", READ, ids=page_name)
def test_the_links_of_a_page_lead_somewhere(page: Path):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s#]+)[^)]*\)", text)
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not missing


def test_the_example_of_the_readme_is_short():
    blocks = python_blocks(ROOT / "README.md")
    assert len(blocks) == 1
    assert len(blocks[0][1].splitlines()) <= 20
