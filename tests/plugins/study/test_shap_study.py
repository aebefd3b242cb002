"""A study whose explainer is shap's: the draws of the fit are explained, and the report is written."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

import kpp
from kpp.__main__ import main

pytest.importorskip("shap")


@pytest.mark.nightly
def test_a_study_is_explained_by_shap(write_study):
    explainer = ('name = "rkhs-shap"\nvalue_function = "interventional"', 'name = "shap"\nshap_explainer = "exact"')
    short = ("num_warmup = 60\nnum_samples = 60", "num_warmup = 50\nnum_samples = 10")
    path = write_study(explainer, short)
    result = CliRunner().invoke(main, ["run", str(path), "--output", str(path.parent / "results")])
    assert result.exit_code == 0, result.output
    found = kpp.Explanation.load(path.parent / "results" / "explanation.nc")
    assert found.attrs["shap_explainer"] == "exact"
    assert found.values.sizes["chain"] == 2
    assert float(np.abs(found.additivity_error()).max()) < 1e-8
    assert "explained by shap" in (path.parent / "results" / "report.html").read_text(encoding="utf-8")
