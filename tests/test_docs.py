"""The pages of docs/ run when the site is built, README.md has the example of one of them, and links lead to files."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
READ = [*PAGES, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"))]
GENERATED = ("gallery/", "api/")  # folders of pages that are written when the site is built
GUIDES = sorted(page for folder in ("how_to", "tutorials") for page in (ROOT / "docs" / folder).glob("*.md"))
WIDEST = 88  # characters of a line of code, which is what fits beside the side bars; longer lines would be scrolled
LANGUAGES = ("{code-cell}", "bash", "console", "py", "python", "toml", "yaml")
LONGEST = 2500  # words of a guide, as `wc -w` counts them; longer parts become pages of their own
NOTEBOOK = "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n---\n"


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The line each block of a language starts on, and its code."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(rf"^```{re.escape(language)}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, match.start(1)), match[1]) for match in found]


def test_the_example_of_the_readme_is_that_of_the_start_page():
    """Which runs when the site is built. The last line prints what a notebook shows."""
    ours, theirs = (
        [ast.unparse(statement) for _, code in blocks(page, language) for statement in ast.parse(code).body]
        for page, language in ((ROOT / "README.md", "python"), (ROOT / "docs" / "index.md", "{code-cell}"))
    )
    assert ours[-1] == f"print({theirs[-1]})"
    assert ours[:-1] == theirs[:-1]


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_the_code_of_a_page_is_run_when_the_site_is_built(page: Path):
    assert not blocks(page, "python"), "a block that is to run is a {code-cell}"
    if blocks(page, "{code-cell}"):
        assert page.read_text(encoding="utf-8").startswith(NOTEBOOK)


@pytest.mark.slow
def test_the_code_for_users_of_other_libraries_does_what_the_page_says():
    names: dict[str, object] = {}
    for _, code in blocks(ROOT / "docs" / "how_to" / "coming_from.md", "{code-cell}"):
        exec(re.sub(r"^:tags:.*$", "", code, flags=re.MULTILINE), names)
    low, high = names["found"].contrast(1.0, 0.0).quantile([0.05, 0.95])
    assert low < 1.0 < high  # the true effect
    assert names["tests"]["p_value"].item() < 0.05


@pytest.mark.parametrize("page", [page for page in READ if page.name != "CONTRIBUTING.md"], ids=page_name)
def test_the_code_of_a_page_need_not_be_scrolled(page: Path):
    code = [
        (start + i, line)
        for each in LANGUAGES
        for start, text in blocks(page, each)
        for i, line in enumerate(text.splitlines(), 1)
    ]
    assert not [f"{page.name}:{number}: {line}" for number, line in code if len(line) > WIDEST]


def without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as MyST makes them."""
    titles = re.findall(r"^#{1,4} (.+)$", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", READ, ids=page_name)
def test_the_links_of_a_page_lead_somewhere(page: Path):
    text = without_code(page)
    targets = re.findall(r"\]\(([^)\s#]+)[^)]*\)", text)
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not [target for target in missing if not target.startswith(GENERATED)]


@pytest.mark.parametrize("page", READ, ids=page_name)
def test_the_links_to_sections_of_pages_lead_to_headings(page: Path):
    targets = re.findall(r"\]\(([^)\s#:]*)#([^)\s]+)\)", without_code(page))
    read = {target: (page.parent / target) if target else page for target, _ in targets}
    assert not [
        (target, anchor)
        for target, anchor in targets
        if read[target].suffix == ".md" and read[target].exists() and anchor not in anchors(read[target])
    ]


@pytest.mark.parametrize("page", GUIDES, ids=page_name)
def test_a_guide_can_be_read_in_one_sitting(page: Path):
    assert len(page.read_text(encoding="utf-8").split()) <= LONGEST


def test_every_guide_is_in_the_index():
    index = (ROOT / "docs/how_to/index.md").read_text(encoding="utf-8").split()
    assert not [page.stem for page in GUIDES if page.parent.name == "how_to" and page.stem not in {*index, "index"}]


def test_the_readme_is_short():
    readme = ROOT / "README.md"
    assert len(readme.read_text(encoding="utf-8").splitlines()) <= 90
    (code,) = blocks(readme, "python")
    assert len(code[1].splitlines()) <= 20


@pytest.mark.parametrize("page", ["docs/reference/faults.md", "SECURITY.md"])
def test_the_tests_of_a_guarantee_exist(page: str):
    sources = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests" / "faults").glob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", (ROOT / page).read_text(encoding="utf-8"))
    assert len(named) > 5
    assert not [name for name in named if f"def {name}(" not in sources]


def test_the_page_of_supported_versions_agrees_with_the_project():
    page = (ROOT / "docs/reference/support.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    libraries = re.findall(r"^\| `([\w-]+)` \| (\S+) \|$", page, re.MULTILINE)
    assert len(libraries) > 5
    assert {f"{name}>={version}" for name, version in libraries} <= set(project["dependencies"])
    pythons = re.findall(r"^\| (3\.\d+) \|", page, re.MULTILINE)
    classifiers = [entry.rpartition(":: ")[2] for entry in project["classifiers"]]
    assert pythons == [version for version in classifiers if version.startswith("3.")]
