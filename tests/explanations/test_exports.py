"""Explanations as ArviZ and shap objects and as data frames."""

from __future__ import annotations

import importlib.util
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest

needs_shap = pytest.mark.skipif(importlib.util.find_spec("shap") is None, reason="shap is not installed")


@pytest.mark.parametrize("outputs", [False, True])
@pytest.mark.parametrize("draws", [False, True])
def test_arviz_reads_contributions_as_a_posterior(make, tmp_path, draws, outputs):
    explanation = make(draws, outputs, law="within")
    idata = explanation.to_arviz()
    posterior = idata["posterior"]
    values = posterior["values"]
    tail = ("output",) if outputs else ()
    assert values.dims == ("chain", "draw", "instance", "feature", *tail)
    assert values.shape[:2] == ((2, 30) if draws else (1, 1))
    np.testing.assert_array_equal(values, explanation.values.values.reshape(values.shape))
    assert values.coords["feature"].values.tolist() == ["age", "bmi", "region"]
    assert set(posterior.data_vars) == {"values", "base_values", "predictions"}
    assert set(idata["constant_data"].data_vars) == {"data", "covariance"}
    idata.to_netcdf(tmp_path / "idata.nc")


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # a contribution that is zero in all draws
def test_arviz_summarizes_every_contribution_by_name(make):
    import arviz as az

    table = az.summary(make(True).to_arviz(), var_names=["values"], kind="diagnostics")
    assert len(table) == 15
    assert "values[0, bmi]" in table.index


@needs_shap
@pytest.mark.parametrize("outputs", [False, True])
@pytest.mark.parametrize("draws", [False, True])
def test_shap_gets_float64_numpy_arrays_of_means(make, draws, outputs):
    explanation = make(draws, outputs)
    mean = explanation.mean()
    converted = explanation.to_shap()
    for array in (converted.values, converted.base_values, converted.data):
        assert type(array) is np.ndarray
        assert array.dtype == np.float64
    np.testing.assert_array_equal(converted.values, mean.values)
    total = converted.base_values + converted.values.sum(axis=1)
    np.testing.assert_allclose(total, mean.predictions, rtol=1e-12)
    assert list(converted.feature_names) == ["age", "bmi", "region"]
    assert converted.display_data[1, 2] == "south"
    if outputs:
        yes = converted[:, :, "yes"]
        np.testing.assert_array_equal(yes.values, mean.values[:, :, 1])
        np.testing.assert_array_equal(yes.base_values, np.full(5, mean.base_values[1]))
    assert converted[2].values.shape == converted.values.shape[1:]


@pytest.mark.slow_variants("violin-False", "violin-True")
@needs_shap
@pytest.mark.filterwarnings("ignore")  # what shap's own plots warn about is shap's
@pytest.mark.parametrize("outputs", [False, True])
@pytest.mark.parametrize("plot", ["beeswarm", "bar", "waterfall", "scatter", "heatmap", "violin"])
def test_the_plots_of_shap_run_on_it(make, plot, outputs):
    import shap

    converted = make(True, outputs).to_shap()
    converted = converted[:, :, 1] if outputs else converted
    part = {"waterfall": lambda: converted[0], "scatter": lambda: converted[:, "bmi"]}.get(plot, lambda: converted)
    getattr(shap.plots, plot)(part(), show=False)
    assert plt.gcf().axes
    plt.close("all")


def test_missing_shap_is_said_with_the_fix(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(ImportError, match=r"pip install 'kpp\[shap\]'"):
        make().to_shap()


@pytest.mark.parametrize("outputs", [False, True])
def test_a_data_frame_has_one_row_a_contribution(make, outputs):
    explanation = make(True, outputs, law="within")
    frame = explanation.to_dataframe(probability=0.8)
    keys = ["instance", "feature", *(["output"] if outputs else [])]
    assert list(frame.columns) == [*keys, "data", "value", "std", "lower", "upper"]
    assert len(frame) == 5 * 3 * (2 if outputs else 1)
    row = frame[(frame["instance"] == 1) & (frame["feature"] == "region")].iloc[0]
    assert row["data"] == "south"
    part = explanation.isel(output=0) if outputs else explanation
    assert row["value"] == pytest.approx(float(part.mean().values[1, 2]), rel=1e-14)
    assert row["lower"] == pytest.approx(float(part.interval(0.8)[1, 2, 0]), rel=1e-14)
    spread = part.values.values[:, :, 1, 2].var() + part.variance.values[:, :, 1, 2].mean()
    assert row["std"] == pytest.approx(np.sqrt(spread), rel=1e-12)


def test_a_certain_explanation_has_no_interval_columns(make):
    explanation = make()
    assert list(explanation.to_dataframe().columns) == ["instance", "feature", "data", "value"]
