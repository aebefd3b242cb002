"""The script that measures run times runs, and its interventional values are those of shap."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("shap")


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("reproduce/rkhs_shap_runtime.py")


@pytest.mark.nightly
def test_every_method_is_measured(script, tmp_path):
    table = script.main(["--quick", "--instances", "5", "--output", str(tmp_path)])
    assert (table.to_numpy() > 0).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rkhs_shap_runtime.csv", "rkhs_shap_runtime.png"]


@pytest.mark.slow
def test_interventional_values_are_those_of_shap(script):
    problem = script.fit(40, 5)
    np.testing.assert_allclose(script.rkhs_isv(problem), script.kshap_isv(problem), rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_methods_beyond_the_budget_are_left_out(script, monkeypatch):
    monkeypatch.setattr(script, "MEASURABLE", 0.0)
    table = script.measure([40, 80], 5, budget=0.0)
    assert np.isfinite(table.loc[40]).all()
    assert np.isnan(table.loc[80]).all()
