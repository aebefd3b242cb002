"""Features that stand for several columns, interactions of pairs, standard errors: held, shown, exported, stored."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import xarray as xr

from kpp.data.tables import Schema
from kpp.explanations import Explanation
from kpp_study.study.reading.units import StudyUnits


@pytest.mark.parametrize("draws", [False, True])
def test_a_group_has_no_value_of_its_own(make_groups, draws, tmp_path):
    explanation = make_groups(draws)
    assert explanation.attrs["groups"] == {"body": ["bmi", "bp"]}
    assert np.isnan(explanation.data.sel(feature="body")).all()
    assert np.isfinite(explanation.data.sel(feature="age")).all()
    frame = explanation.to_dataframe()
    assert frame["data"].isna().tolist() == (frame["feature"] == "body").tolist()
    explanation.save(tmp_path / "e.nc")
    xr.testing.assert_equal(Explanation.load(tmp_path / "e.nc").dataset, explanation.dataset)
    assert set(explanation.to_arviz()["constant_data"].data_vars) == {"data", "standard_errors"}
    assert float(explanation.additivity_error().max()) < 1e-12


@pytest.mark.slow_variants("bar")
@pytest.mark.filterwarnings("ignore")  # shap's own
@pytest.mark.skipif(importlib.util.find_spec("shap") is None, reason="shap is not installed")
@pytest.mark.parametrize("plot", ["beeswarm", "bar", "waterfall"])
def test_shap_plots_groups(make_groups, plot):
    import matplotlib.pyplot as plt
    import shap

    converted = make_groups().to_shap()
    assert np.isnan(converted.data[:, 1]).all()
    getattr(shap.plots, plot)(converted[0] if plot == "waterfall" else converted, show=False)
    plt.close("all")


NOT_FINITE = [
    ({}, "`data` must be finite, got 2"),  # no group
    ({"groups": {"b": ["c", "d"]}}, "`data` must be finite, got 2"),  # another feature
]


@pytest.mark.parametrize(("options", "message"), NOT_FINITE)
def test_only_groups_may_lack_a_value(options, message):
    data = np.array([[np.nan, 1.0], [np.nan, 2.0]])
    with pytest.raises(ValueError, match=message):
        Explanation.create(np.zeros((2, 2)), 0.0, np.zeros(2), data, feature_names=["a", "b"], **options)


def test_a_group_lacks_all_its_values_or_none():
    data = np.array([[np.nan, 1.0], [3.0, 2.0]])
    options = {"feature_names": ["a", "b"], "groups": {"a": ["c", "d"]}}
    with pytest.raises(ValueError, match="`data` must be finite, got 1"):
        Explanation.create(np.zeros((2, 2)), 0.0, np.zeros(2), data, **options)
    coded = Explanation.create(np.zeros((2, 2)), 0.0, np.zeros(2), np.zeros((2, 2)), **options)
    assert coded.attrs["groups"] == {"a": ["c", "d"]}


@pytest.mark.parametrize("draws", [False, True])
def test_interactions_and_standard_errors_are_held_and_averaged(make_groups, draws):
    explanation = make_groups(draws)
    sample = ("chain", "draw") if draws else ()
    assert explanation.interactions.dims == (*sample, "instance", "feature", "feature_other")
    assert explanation.standard_errors.dims == explanation.values.dims
    mean = explanation.mean()
    expected = explanation.interactions.mean(sample)
    np.testing.assert_allclose(mean.interactions, expected, rtol=1e-13)
    np.testing.assert_allclose(mean.standard_errors, explanation.standard_errors.mean(sample), rtol=1e-13)
    part = explanation[[3, 1]]
    np.testing.assert_array_equal(part.interactions, explanation.interactions.isel(instance=[3, 1]))
    frame = explanation.to_dataframe()
    np.testing.assert_allclose(frame["standard_error"], mean.standard_errors.values.ravel(), rtol=1e-13)
    assert "interactions" in explanation.to_arviz()["posterior"]
    assert "interactions, standard_errors" in repr(explanation)


def test_shapes_and_signs_are_checked():
    good = {"values": np.zeros((4, 2)), "base_values": 0.0, "predictions": np.zeros(4), "data": np.zeros((4, 2))}
    with pytest.raises(ValueError, match=r"`interactions` must have shape \(4, 2, 2\)"):
        Explanation.create(**good, interactions=np.zeros((4, 2)))
    with pytest.raises(ValueError, match="`standard_errors` must not be negative"):
        Explanation.create(**good, standard_errors=np.full((4, 2), -1.0))


@pytest.mark.parametrize("name", ["beeswarm", "bar", "waterfall", "forest", "interactions"])
def test_every_plot_takes_groups(make_groups, ax, name):
    explanation = make_groups(True)
    assert getattr(explanation.plot, name)(ax=ax) is ax
    ax.figure.canvas.draw()
    if name == "waterfall":
        assert "body" in [text.get_text() for text in ax.get_yticklabels()]


def test_a_beeswarm_paints_groups_gray(make_groups, ax):
    make_groups(True).plot.beeswarm(ax=ax)
    ax.figure.canvas.draw()  # colors are looked up only now
    labels = [text.get_text() for text in ax.get_yticklabels()]
    colors = {name: np.unique(row.get_facecolors(), axis=0) for name, row in zip(labels, ax.collections, strict=True)}
    assert len(colors["body"]) == 1
    assert len(colors["age"]) > 1


def test_a_scatter_refuses_a_group_on_its_axis_and_paints_it_gray(make_groups, ax):
    explanation = make_groups()
    explanation.plot.scatter("age", color="body", ax=ax)
    ax.figure.canvas.draw()
    assert len(np.unique(ax.collections[-1].get_facecolors(), axis=0)) == 1
    with pytest.raises(ValueError, match="'body' stands for several columns"):
        explanation.plot.scatter("body", ax=ax)


def test_a_forest_has_a_point_and_an_interval_for_each_feature_and_instance(make, ax):
    explanation = make(True)
    explanation.plot.forest([1, 3], probability=0.8, ax=ax)
    names = [text.get_text() for text in ax.get_yticklabels()]
    lines, points = ax.collections[2], ax.collections[3]  # of the second instance; each has its lines, then its points
    x = points.get_offsets()[:, 0]
    np.testing.assert_allclose(x, explanation.mean().values.sel(feature=names)[3], rtol=1e-12)
    bounds = explanation.interval(0.8).sel(feature=names)[3]
    drawn = [segment[:, 0] for segment in lines.get_segments()]
    np.testing.assert_allclose(drawn, bounds, rtol=1e-12)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["1", "3"]
    assert "80% equal-tailed interval" in ax.get_xlabel()


@pytest.mark.parametrize("instance", [None, 2])
def test_a_table_of_interactions_shows_the_largest(make_groups, ax, instance):
    explanation = make_groups(True)
    explanation.plot.interactions(instance, max_features=2, ax=ax)
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert len(names) == 2
    values = explanation.interactions.sel(feature=names, feature_other=names)
    expected = abs(values).mean("instance") if instance is None else values.isel(instance=instance)
    np.testing.assert_allclose(ax.images[0].get_array(), expected.mean(("chain", "draw")), rtol=1e-12)
    assert len(ax.texts) == 4


def test_interactions_that_are_not_there_cannot_be_plotted(make):
    with pytest.raises(ValueError, match="holds no interactions"):
        make().plot.interactions()


def test_a_study_returns_everything_to_its_units(make_groups):
    """The study divided its target by 10."""
    explanation = make_groups(True)
    rows = np.array([4, 0, 9, 2, 1])
    x = np.arange(40.0).reshape(10, 4)[rows]
    units = StudyUnits(Schema(("age", "bmi", "bp", "dose")), np.zeros(4), np.full(4, 7.0), 3.0, 10.0, "y")
    converted = units.explanation(explanation, x, rows)
    for name in ("values", "interactions", "standard_errors"):
        np.testing.assert_allclose(converted.dataset[name], 10.0 * explanation.dataset[name], rtol=1e-14)
    np.testing.assert_array_equal(converted.data.sel(feature="age"), x[:, 0])
    np.testing.assert_array_equal(converted.data.sel(feature="dose"), x[:, 3])
    assert np.isnan(converted.data.sel(feature="body")).all()
    assert float(converted.additivity_error().max()) < 1e-12
