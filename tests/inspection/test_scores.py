"""Scores of features as tables, plots and objects of shap."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from kpp.inspection import FeatureScores

NAMES = ["age", "dose", "noise"]


@pytest.fixture
def found():
    draws = np.random.default_rng(0).normal([1.0, 3.0, -0.2], 0.3, size=(2, 50, 3))
    array = xr.DataArray(draws, dims=("chain", "draw", "feature"), coords={"feature": NAMES}, attrs={"unit": "mg"})
    return FeatureScores(xr.Dataset({"total_effect": array}, attrs={"uncertainty": "full"}))


def test_a_plot_shows_means_and_intervals_the_largest_first(found):
    axis = found.plot("total_effect", probability=0.5)
    table = found.summary(0.5).loc["total_effect"].sort_values("mean", ascending=False)
    assert [label.get_text() for label in axis.get_yticklabels()] == table.index.tolist()
    assert [patch.get_width() for patch in axis.patches] == pytest.approx(table["mean"].tolist())
    lines = np.array([segment[:, 0] for segment in axis.collections[0].get_segments()])
    assert lines == pytest.approx(table[["25 %", "75 %"]].to_numpy())
    assert axis.get_xlabel().startswith("total effect (mg)")
    assert len(found.plot("total_effect", max_features=1).patches) == 1


def test_shap_takes_them(found):
    shap = pytest.importorskip("shap")
    exported = found.to_shap("total_effect")
    table = found.summary().loc["total_effect"]
    assert exported.feature_names == NAMES
    assert exported.values == pytest.approx(table["mean"].to_numpy())
    assert np.stack([exported.lower_bounds, exported.upper_bounds], 1) == pytest.approx(table.iloc[:, 2:].to_numpy())
    shap.plots.bar(exported, show=False)


@pytest.mark.parametrize("method", ["plot", "to_shap"])
def test_an_unknown_measure_is_refused(found, method):
    with pytest.raises(ValueError, match=r"`measure` must be .*total_effect"):
        getattr(found, method)("first_order")
