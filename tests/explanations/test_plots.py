"""What the plots draw: how many points, bars and lines, where, and with which labels. Pixels are not compared."""

from __future__ import annotations

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import kpp
from kpp import plots
from kpp.plots.toolkit import mean_absolute

pytestmark = pytest.mark.filterwarnings("error")

CALLS = {
    "beeswarm": {"probability": 0.9},
    "bar": {},
    "waterfall": {"instance": 1},
    "scatter": {"feature": "bmi"},
    "forest": {"instances": [0, 2]},
}
# Each plot has a row with draws and one without among the default tests; the other combinations are slow tests.
REST = [
    pytest.param(*row, marks=pytest.mark.slow)
    for row in ((True, None), (True, "variance"), (False, None), (False, "within"))
]


@pytest.mark.parametrize(("draws", "law"), [(True, "within"), (False, "variance"), *REST])
@pytest.mark.parametrize("name", CALLS)
def test_every_plot_draws_on_the_axis_it_is_given(make, ax, name, draws, law):
    explanation = make(draws, law=law)
    assert getattr(explanation.plot, name)(**CALLS[name], ax=ax) is ax
    ax.figure.canvas.draw()
    assert ax.get_xlabel()
    stated = "90% equal-tailed interval" in ax.get_xlabel()
    assert stated is (draws or (law is not None and name != "bar"))


DOLLARS = ["$x_{$", "cost in $", r"$\unknown$"]


@pytest.mark.parametrize("in_report", [False, True])
@pytest.mark.parametrize(("name", "options"), [*CALLS.items(), ("interactions", {})])
def test_dollar_signs_in_names_begin_no_formula(name, options, in_report):
    values = np.arange(1.0, 7.0).reshape(2, 3)
    explanation = kpp.Explanation.create(values, 0.0, values.sum(axis=1), values, feature_names=DOLLARS)
    options = options | ({"feature": DOLLARS[0], "color": DOLLARS[2]} if name == "scatter" else {})
    options = options | ({"instances": [0, 1]} if name == "forest" else {})
    with plt.rc_context({"text.parse_math": not in_report}):  # the report turns formulas off
        if name == "interactions":
            table = xr.DataArray(np.eye(3), dims=("feature", "feature_other"), coords={"feature": DOLLARS})
            ax = plots.interactions(table)
        else:
            ax = getattr(explanation.plot, name)(**options)
        ax.figure.canvas.draw()
        texts = [*ax.get_xticklabels(), *ax.get_yticklabels(), ax.xaxis.label, ax.yaxis.label]
    plt.close(ax.figure)
    dollar = "$" if in_report else r"\$"
    shown = "\n".join(text.get_text() for text in texts).replace(dollar, "$")
    assert all(feature in shown for feature in (DOLLARS[:1] if name == "scatter" else DOLLARS))


def test_long_names_are_shortened_in_the_middle():
    names = ["begin " + 900 * "long " + "end", "two\nlines"]
    ax = kpp.Explanation.create(np.eye(2), 0.0, np.ones(2), np.eye(2), feature_names=names).plot.waterfall(0)
    labels = [label.get_text().replace("\n", " ") for label in ax.get_yticklabels()]
    plt.close(ax.figure)
    long = next(label for label in labels if "begin" in label)
    assert len(long) <= 60
    assert long.startswith("begin long long")
    assert long.endswith("end = 1")
    assert any("two lines = 0" in label for label in labels)


@pytest.mark.parametrize("name", CALLS)
def test_every_plot_opens_a_figure_of_its_own(make, ax, name):
    axis = getattr(make(True, outputs=True).plot, name)(**CALLS[name], output="yes")
    assert axis.figure is not ax.figure
    axis.figure.canvas.draw()


def labels(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def order(explanation):
    """The names of the features, the largest posterior mean of the mean absolute contribution first."""
    importance = mean_absolute(explanation.values).mean(("chain", "draw")).values
    return [explanation.feature_names[j] for j in np.argsort(-importance)]


def test_the_texts_beside_the_colors_of_a_beeswarm_do_not_overlap(make):
    bar = make(True).plot.beeswarm().figure.axes[-1]
    bar.figure.draw_without_rendering()
    texts = [*bar.get_yticklabels(), bar.yaxis.label]
    boxes = [text.get_window_extent() for text in texts]
    assert len(boxes) == 3
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_a_beeswarm_has_a_point_for_each_contribution(make, ax):
    explanation = make(True)
    explanation.plot.beeswarm(ax=ax)
    names = order(explanation)
    assert labels(ax) == names
    rows = [collection for collection in ax.collections if len(collection.get_offsets()) == 5]
    assert len(rows) == 3
    for row, (points, name) in enumerate(zip(rows, names, strict=True)):
        x, y = points.get_offsets().T
        np.testing.assert_allclose(x, explanation.mean().values.sel(feature=name), rtol=1e-12)
        assert (np.abs(y - row) < 0.5).all()


def test_features_beyond_the_limit_are_summed(make, ax):
    explanation = make(True)
    explanation.plot.beeswarm(max_features=2, ax=ax)
    names = order(explanation)
    assert labels(ax) == [names[0], "2 other features"]
    x = ax.collections[-1].get_offsets()[:, 0]
    np.testing.assert_allclose(x, explanation.mean().values.sel(feature=names[1:]).sum("feature"), rtol=1e-12)


def test_equal_contributions_are_spread_apart(ax):
    values = np.zeros((20, 1))
    plots.beeswarm(as_array(values), as_array(values), ax=ax)
    (points,) = ax.collections
    y = points.get_offsets()[:, 1]
    assert len(np.unique(y)) == 20
    assert np.abs(y).max() < 0.5


def as_array(values):
    import xarray as xr

    return xr.DataArray(values, dims=("instance", "feature"))


@pytest.mark.parametrize("kind", ["eti", "hdi"])
def test_bars_are_posterior_mean_importances_with_intervals(make, ax, kind):
    explanation = make(True)
    explanation.plot.bar(probability=0.8, kind=kind, ax=ax)
    draws = mean_absolute(explanation.values)
    ranked = draws.mean(("chain", "draw"))
    ranked = ranked.sortby(-ranked)
    assert labels(ax) == ranked.feature.values.tolist()
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], ranked, rtol=1e-12)
    bounds = plots.credible_interval(draws.sel(feature=ranked.feature), 0.8, kind)
    drawn = [segment[:, 0] for segment in ax.collections[0].get_segments()]
    np.testing.assert_allclose(drawn, bounds, rtol=1e-12)
    assert {"eti": "equal-tailed", "hdi": "highest-density"}[kind] in ax.get_xlabel()


def test_a_waterfall_leads_from_the_base_value_to_the_prediction(make, ax):
    explanation = make(True)
    explanation.plot.waterfall(1, ax=ax)
    mean = explanation.mean()[1]
    bars = ax.patches
    assert bars[0].get_x() == pytest.approx(float(mean.base_values))
    assert bars[-1].get_x() + bars[-1].get_width() == pytest.approx(float(mean.predictions[0]))
    for upper, lower in zip(bars[:-1], bars[1:], strict=True):
        assert lower.get_x() == pytest.approx(upper.get_x() + upper.get_width())
    sizes = np.abs([bar.get_width() for bar in bars])
    assert (np.diff(sizes) <= 0).all()
    assert "region = south" in labels(ax)
    assert any(text.startswith("bmi = ") for text in labels(ax))


@pytest.mark.parametrize("layout", [None, "constrained"])
def test_the_title_of_a_waterfall_fits_into_a_narrow_figure(layout):
    names = ["worst concave points", "mean fractal dimension error", "radius"]
    values = np.array([[-1.234, 0.8, -0.2]])
    explanation = kpp.Explanation.create(values, -1234.5, values.sum(axis=1) - 1234.5, values, feature_names=names)
    figure, ax = plt.subplots(figsize=(6.4, 3.0), layout=layout)
    explanation.plot.waterfall(0, ax=ax)
    figure.canvas.draw()
    extent, (width, height) = ax.title.get_window_extent(), figure.bbox.size
    plt.close(figure)
    assert ax.get_title().replace("\n", " ") == (
        "from the base value \u22121234 (dotted) to the prediction \u22121235 (dashed)"
    )
    assert 0 < extent.x0 < extent.x1 < width
    assert extent.y1 < height


def test_a_waterfall_sums_what_it_does_not_show(make, ax):
    explanation = make()
    explanation.plot.waterfall(0, max_features=1, ax=ax)
    assert labels(ax) == ["3 other features"]
    assert ax.patches[0].get_width() == pytest.approx(float(explanation[0].values.sum()))


def test_a_scatter_has_contribution_against_value(make, ax):
    explanation = make(True)
    explanation.plot.scatter("bmi", color="age", ax=ax)
    points = ax.collections[-1]
    expected = np.column_stack([explanation.data.sel(feature="bmi"), explanation.mean().values.sel(feature="bmi")])
    np.testing.assert_allclose(points.get_offsets(), expected, rtol=1e-12)
    np.testing.assert_allclose(points.get_array(), explanation.data.sel(feature="age"))


def test_a_scatter_of_a_category_names_its_levels(make, ax):
    make(True).plot.scatter("region", ax=ax)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["north", "south", "west"]
    x = ax.collections[-1].get_offsets()[:, 0]
    assert (np.abs(x - [0, 1, 2, 1, 0]) < 0.2).all()


@pytest.mark.parametrize("output", ["yes", 1, -1])
def test_one_of_several_outputs_is_chosen(make, ax, output):
    explanation = make(outputs=True)
    explanation.plot.waterfall(0, output=output, ax=ax)
    last = ax.patches[-1]
    assert last.get_x() + last.get_width() == pytest.approx(float(explanation.predictions[0, 1]))


WRONG = [
    ("beeswarm", {}, r"`output` must be one of \['no', 'yes'\]", True),
    ("beeswarm", {"output": "maybe"}, "got 'maybe'", True),
    ("bar", {"output": "yes"}, "`output` goes with several outputs", False),
    ("bar", {"max_features": 0}, "`max_features` must be at least 1", False),
    ("bar", {"probability": 95.0}, "`probability` must be between 0 and 1", False),
    ("scatter", {"feature": "bmj"}, "did you mean 'bmi'", False),
    ("scatter", {"feature": "bmi", "color": "agee"}, "did you mean 'age'", False),
]


@pytest.mark.parametrize(("name", "options", "message", "outputs"), WRONG)
def test_bad_options_are_refused(make, name, options, message, outputs):
    with pytest.raises(ValueError, match=message):
        getattr(make(True, outputs).plot, name)(**options)
    plt.close("all")


def test_arrays_with_other_dimensions_are_refused(make):
    with pytest.raises(ValueError, match="select one output first"):
        plots.bar(make(True, outputs=True).values)
    with pytest.raises(ValueError, match=r"dimensions \(\[chain, draw,\] feature\)"):
        plots.waterfall(make().values, make().base_values, make().predictions[0])
