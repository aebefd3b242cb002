"""What the extensions in docs/ add to the site: links between pages and names, to sources, and to notebooks."""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from kpp import registry

pytest.importorskip("sphinx")
MdParserConfig = pytest.importorskip("myst_parser.config.main").MdParserConfig
DOCS = Path(__file__).resolve().parents[1] / "docs"


def extension(name: str) -> ModuleType:
    """Import an extension from docs/, as Sphinx does."""
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def used_in() -> ModuleType:
    return extension("used_in")


@pytest.fixture(scope="module")
def page_links() -> ModuleType:
    return extension("page_links")


def test_names_are_found_in_code_however_they_are_imported(used_in: ModuleType):
    code = """
import kpp
import numpy as np
from kpp import kernels
from kpp.kernels import RBF as Gaussian
kernel = Gaussian(1.0) + kernels.Linear() + Gaussian(np.ones(2))
kpp.Explanation.create(kpp.explain(kernel, [[0.0]], explainer="lime"))
"""
    counts = {"kpp.kernels.RBF": 2, "kpp.kernels.Linear": 1, "kpp.Explanation": 1, "kpp.explain": 1}
    assert used_in.names_in(code) == counts | {"kpp_surrogates.LIME": 1}


@pytest.mark.slow
def test_every_page_with_code_of_kpp_is_read(used_in: ModuleType):
    code = {page: used_in.code_of(path) for page, path in used_in.sources().items()}
    assert not [page for page in code if "import kpp" in code[page] and not used_in.uses()[page]]


def test_links_lead_both_ways(used_in: ModuleType):
    listed = {
        (name, page) for name in used_in.places().values() for pages in used_in.users(name).values() for page in pages
    }
    assert len(listed) > 500
    assert all(name in used_in.uses()[page] for name, page in listed)
    assert set(used_in.users("kpp.explain")) == {"Guides", "Examples"}


def test_the_page_of_explain_lists_the_fields_of_every_explainer_and_value_function(used_in: ModuleType):
    text = "\n".join(importlib.import_module("reference_pages").options_of_explain())
    for classes in (registry.explainers(), registry.value_functions()):
        for name, cls in classes.items():
            (row,) = (part for part in text.split("   * - ") if f"`{name} <" in part)
            assert not [each.name for each in dataclasses.fields(cls) if each.init and each.name not in row]
    (row,) = (part for part in text.split("   * - ") if "`kernel-shap <" in part)
    assert "**background**, ``method='auto'``" in row


@pytest.mark.parametrize(
    ("page", "source"),
    [
        ("how_to/gpec", "docs/how_to/gpec.md"),
        ("gallery/trust/gpec_boundary", "examples/gallery/trust/gpec_boundary.py"),
        ("reproducibility/cmp", None),  # written from stored results
        ("reference/api/generated/kpp.explain", None),
    ],
)
def test_a_page_is_edited_in_its_source(page_links: ModuleType, page: str, source: str | None):
    assert page_links.source_of_page(page) == source


@pytest.mark.parametrize("name", ["explain", "Fit", "Fit.save"])
def test_a_name_links_to_the_lines_that_define_it(page_links: ModuleType, name: str):
    address = page_links.source_of_object("https://example.org/kpp", {"module": "kpp", "fullname": name})
    file, _, lines = address.removeprefix("https://example.org/kpp/blob/main/").partition("#")
    first, last = (int(number) for number in re.fullmatch(r"L(\d+)-L(\d+)", lines).groups())
    source = (DOCS.parent / file).read_text(encoding="utf-8").splitlines()[first - 1 : last]
    assert any(re.match(rf"\s*(def|class) {name.rpartition('.')[2]}\b", line) for line in source)


def test_commands_name_the_distribution_that_is_installed(page_links: ModuleType):
    source = ["Install the extra: `pip install 'kpp[dask]'`."]
    page_links.name_the_distribution(SimpleNamespace(config=SimpleNamespace(project="kernelpp")), "page", source)
    assert source == ["Install the extra: `pip install 'kernelpp[dask]'`."]


def test_what_has_no_source_has_no_link(page_links: ModuleType):
    assert page_links.source_of_object("", {"module": "kpp", "fullname": "nothing"}) is None
    assert page_links.source_of_object("", {"module": "numpy", "fullname": "mean"}) is None


def test_a_notebook_can_be_read_outside_the_site(page_links: ModuleType):
    text = "See {py:obj}`kpp.explain`, {term}`the point <bag>`, [a](gpec.md#noise), [b](../api/x), [c](https://d.org/e.md)."
    expected = (
        "See *kpp.explain*, *the point*, [a](S/how_to/gpec.html#noise), [b](S/api/x.html), [c](https://d.org/e.md)."
    )
    assert page_links.plain(text, "how_to/kernels", "S/") == expected
    notebook = page_links.notebook("how_to/gpec", "S/", MdParserConfig())
    assert {cell.cell_type for cell in notebook.cells} == {"code", "markdown"}
    assert page_links.notebook("how_to/index", "S/", MdParserConfig()) is None


def test_the_search_words_belong_to_pages():
    words = tomllib.loads((DOCS / "search_words.toml").read_text(encoding="utf-8"))
    sources = {page: (DOCS / f"{page}.md", DOCS.parent / "examples" / f"{page}.py") for page in words}
    assert not [page for page, paths in sources.items() if not any(path.exists() for path in paths)]
    assert {"feature importance", "missing values", "SHAP"} <= {
        phrase for phrases in words.values() for phrase in phrases
    }
