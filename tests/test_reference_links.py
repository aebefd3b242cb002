"""The reference and the pages that use its names link to each other, and `kpp.explain` lists all options."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kpp import registry

pytest.importorskip("sphinx")
DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture(scope="module")
def used_in() -> ModuleType:
    """The module that finds the links, imported from docs/ as Sphinx does."""
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module("used_in")
    finally:
        sys.path.remove(str(DOCS))


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
