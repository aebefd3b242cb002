"""Code and pages are in American spelling."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STEMS = (
    "colour favour behaviour neighbour honour modelled modelling centre analyse optimis minimis maximis normalis "
    "standardis generalis regularis summaris organis recognis initialis visualis randomis parametris factoris "
    "discretis marginalis penalis utilis realis symmetris vectoris grey artefact catalogue judgement travell whilst "
    "labelled labelling misspelt"
).split()
BRITISH = re.compile("|".join(STEMS), re.IGNORECASE)
# A name that was changed, titles of papers, a color map of Matplotlib, an attribute of HTML, an experiment whose name
# is that of its stored results, and an array of the reference data.
ALLOWED = re.compile(
    r"`unlabelled`|returning the favour|generalised covariance measure|Greys|labelledby|"
    r"(gpec|shapley)[_-]regularisation|out_var_normalised",
    re.IGNORECASE,
)
FOLDERS = ("kpp", "models", "plugins", "docs", "tests", "examples/gallery", "paper", ".github", ".ci", "")
# Made from stored results of the papers' experiments, whose scripts have these words as keys; and this list.
LEFT_OUT = ("docs/reproducibility", "docs/gallery", "docs/api", "tests/examples", "tests/test_spelling.py")


@pytest.mark.slow_variants("kpp", "tests", "docs", "plugins")
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_spelling_is_american(folder: str):
    ends = ("*.py", "*.md", "*.j2", "*.css", "*.template", "*.toml", "*.yml", "run")
    find = (ROOT / folder).rglob if folder else ROOT.glob
    paths = [path for end in ends for path in find(end) if path.is_file()]
    ours = [path for path in paths if not str(path.relative_to(ROOT)).startswith(LEFT_OUT)]
    assert ours
    wrong = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()}"
        for path in ours
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if BRITISH.search(ALLOWED.sub("", line))
    ]
    assert not wrong, "\n".join(wrong)
