"""Plots of awkward data can be read: long names, many features, rows and levels, an outlier, a dark style."""

from __future__ import annotations

import itertools
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import kpp
from kpp import plots
from kpp.causal import CausalDAG
from kpp.data.tables import Schema
from kpp.explanations.parts.export import explanation_html
from kpp.plots._colors import LEVEL_STYLES, NEUTRAL, PERCENTILES
from kpp_study.report.drawings.alternatives import beeswarm as described
from kpp_study.report.explained import importance
from kpp_study.report.rows import row_table

pytestmark = pytest.mark.filterwarnings("error")

STATES = ("Mecklenburg-Vorpommern", "Baden-Württemberg", "Nordrhein-Westfalen", "Schleswig-Holstein") * 2
LEVELS = tuple(f"{name} {number}" for number, name in enumerate(STATES))
LONG = ("mean systolic blood pressure at the second visit", "log_triglycerides_measured_after_fasting")
FEW = (*LONG, "state", "income")
MANY = (*FEW, *(f"the feature with the number {number}" for number in range(16)))
OUTLIER = 1e6


def explain(names=FEW, rows=40, levels=LEVELS, draws=20) -> kpp.Explanation:
    """Contributions with draws; the income of one row is an outlier, and the state a category."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(rows, len(names)))
    data[:, names.index("state")] = np.arange(rows) % len(levels)
    data[0, names.index("income")] = OUTLIER
    values = (rng.normal(size=(1, draws, 1, 1)) - 3.0) * np.tanh(data) * np.linspace(1.0, 0.3, len(names))
    schema = Schema(tuple(names), {"state": levels})
    return kpp.Explanation.create(values, -1.0, values.sum(axis=-1) - 1.0, data, schema=schema, draws=True)


def tables(names=FEW) -> dict[str, xr.DataArray]:
    """What the plots of several explanations, of pairs and of searches show."""
    values, other = explain(names).mean().values, explain(names).mean().values * 0.5
    pairs = np.random.default_rng(1).normal(size=(len(names), len(names)))
    pairs[0, 1] = pairs[1, 0] = -1234.5
    searches = np.abs(np.random.default_rng(2).normal(size=(5, 3, 6)))
    return {
        "comparison": xr.concat([values, other], dim=xr.DataArray(list(LONG), dims="explanation")),
        "interactions": xr.DataArray(pairs, dims=("feature", "feature_other"), coords={"feature": list(names)}),
        "regret": xr.DataArray(searches, dims=("prior", "replication", "query"), coords={"prior": list(MANY[:5])}),
    }


CALLS = {
    "beeswarm": lambda ax, names: explain(names).plot.beeswarm(max_features=30, ax=ax),
    "bar": lambda ax, names: explain(names).plot.bar(max_features=30, ax=ax),
    "waterfall": lambda ax, names: explain(names).plot.waterfall(0, max_features=30, ax=ax),
    "forest": lambda ax, names: explain(names).plot.forest(range(8), max_features=30, ax=ax),
    "scatter": lambda ax, names: explain(names).plot.scatter("state", color="state", ax=ax),
    "comparison": lambda ax, names: plots.comparison(tables(names)["comparison"], max_features=30, ax=ax),
    "interactions": lambda ax, names: plots.interactions(tables(names)["interactions"], max_features=30, ax=ax),
    "regret": lambda ax, names: plots.regret(tables(names)["regret"], ax=ax),
}
# A figure of its own with 20 features, and the axis of a figure whose layout nobody manages, with 4.
CASES = [(name, size) for name in CALLS for size in ("many", "plain")]
WITHOUT_FEATURES = {("scatter", "many"), ("regret", "many")}


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def shown(texts) -> list:
    return [text for text in texts if text.get_text() and text.get_visible()]


def overlap(one, other) -> bool:
    """Whether boxes share more than a pixel, which is less than the space around letters."""
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    return width > 1 and min(one.y1, other.y1) - max(one.y0, other.y0) > 1


@pytest.mark.slow_variants("bar-many", "beeswarm-many", "forest-many", "interactions-many", "waterfall-many")
@pytest.mark.parametrize(("name", "size"), [case for case in CASES if case not in WITHOUT_FEATURES], ids=str)
def test_labels_do_not_overlap_and_legends_lie_beside_the_data(name, size):
    ax = CALLS[name](None, MANY) if size == "many" else CALLS[name](plt.subplots(figsize=(7.0, 5.0))[1], FEW)
    ax.figure.canvas.draw()
    rows = [text.get_window_extent() for text in shown(ax.get_yticklabels())]
    assert not any(overlap(*pair) for pair in itertools.combinations(rows, 2))
    columns = shown(ax.get_xticklabels())
    if all(text.get_rotation() == 0 for text in columns):
        boxes = [text.get_window_extent() for text in columns]
        assert not any(overlap(*pair) for pair in itertools.combinations(boxes, 2))
    else:  # the distance between turned lines of text is that between their ends, divided by the root of 2
        distance = np.diff([ax.transData.transform((place, 0))[0] for place in ax.get_xticks()[:2]])[0] / np.sqrt(2)
        heights = [text.get_fontsize() * (text.get_text().count("\n") + 1) * ax.figure.dpi / 72 for text in columns]
        assert max(heights) <= 1.05 * distance
    assert max(len(line) for text in shown(ax.get_yticklabels()) for line in text.get_text().split("\n")) <= 25
    assert ax.bbox.width > 0.3 * ax.figure.bbox.width
    legend = ax.get_legend()
    if legend is not None:
        assert not overlap(legend.get_window_extent(), ax.bbox)
        assert legend.get_window_extent().x1 <= ax.figure.bbox.x1


@pytest.mark.parametrize("name", ["bar", "waterfall", "interactions"])
def test_negative_numbers_have_a_minus_sign(name):
    ax = CALLS[name](None, FEW)
    ax.figure.canvas.draw()
    texts = [*ax.texts, *ax.get_xticklabels(), *ax.get_yticklabels(), ax.title]
    written = "\n".join(text.get_text() for text in texts)
    assert not re.search(r"-\d", written)
    assert name == "bar" or re.search(r"\u2212\d", written)


def test_a_forest_of_eight_rows_and_ten_features_fits_on_a_page():
    ax = explain(MANY).plot.forest(range(8))
    assert ax.figure.get_size_inches()[1] < 9.0
    points = [np.sort(row.get_offsets()[:, 1]) for row in ax.collections[1::2]]
    gaps = np.diff(np.sort(np.concatenate(points)))
    np.testing.assert_allclose(gaps.min(), 0.1, rtol=1e-9)  # eight lanes in 0.8 of a row


def test_a_waterfall_has_the_order_of_the_report():
    explanation = explain()
    drawn = [label.get_text().replace("\n", " ") for label in explanation.plot.waterfall(0).get_yticklabels()]
    (row,) = row_table(explanation, [0], None, max_features=10).waterfalls
    assert [label.split(" =")[0].replace("_ ", "_") for label in drawn] == [
        step.label.split(" =")[0] for step in row.waterfall.steps
    ]


@pytest.mark.slow
def test_features_have_one_order_everywhere():
    """Feature a is uncertain: its contributions are large in each draw, and small on average."""
    draws = np.array([3.0, -2.9])[:, None, None] * [1.0, 0.0, 0.0] + [0.0, 1.0, 0.5]
    values = np.broadcast_to(draws, (2, 2, 4, 3))
    explanation = kpp.Explanation.create(
        values, 0.0, values.sum(axis=-1), np.eye(4, 3), feature_names=list("abc"), draws=True
    )
    several = [explanation.plot.forest(range(4)), explanation.plot.bar(), explanation.plot.beeswarm()]
    orders = [[label.get_text() for label in ax.get_yticklabels()] for ax in several]
    orders += [[row.name for row in importance(explanation)]]
    orders += [[name for name, _ in row_table(explanation, [0], None, max_features=3).features]]
    orders += [re.findall(r"\b([abc]) from", described(explanation, None))]
    orders += [re.findall(r">([abc])</td>", explanation_html(explanation.dataset))]
    assert orders == [["a", "b", "c"]] * len(orders)


def test_an_outlier_leaves_the_other_values_their_colors():
    explanation = explain()
    income = explanation.data.sel(feature="income").values
    ax = explanation.plot.scatter(LONG[0], color="income")
    low, high = np.quantile(income, [0.05, 0.95])
    assert ax.collections[-1].get_clim() == pytest.approx((low, high))
    bar = ax.collections[-1].colorbar
    assert bar.extend == "both"
    assert bar.ax.get_ylabel() == f"income\n({PERCENTILES})"
    swarm = explanation.plot.beeswarm()
    place = [label.get_text() for label in swarm.get_yticklabels()].index("income")
    np.testing.assert_allclose(swarm.collections[place].get_array(), np.clip((income - low) / (high - low), 0, 1))
    low_text, high_text = (label.get_text() for label in swarm.figure.axes[-1].get_yticklabels())
    assert low_text.split() == ["low", "≤", "5th", "percentile"]
    assert high_text.split() == ["high", "≥", "95th", "percentile"]


@pytest.mark.parametrize("diverging", [False, True])
def test_the_scale_of_a_field_leaves_out_outliers_and_nothing_else(diverging):
    field = xr.DataArray(np.random.default_rng(0).normal(size=(20, 20)), dims=("lat", "lon"), name="rain")
    ax = plots.field(field, diverging=diverging)
    furthest = float(abs(field).max())
    wanted = (-furthest, furthest) if diverging else (float(field.min()), float(field.max()))
    assert ax.collections[0].get_clim() == pytest.approx(wanted)
    assert (ax.collections[0].colorbar.extend, ax.collections[0].colorbar.ax.get_ylabel()) == ("neither", "rain")
    field[3, 3] = OUTLIER
    ax = plots.field(field, diverging=diverging)
    low, high = np.quantile(field, [0.05, 0.95])
    limits = (-max(-low, high), max(-low, high)) if diverging else (low, high)
    assert ax.collections[0].get_clim() == pytest.approx(limits)
    assert ax.collections[0].colorbar.extend == "both"
    assert ax.collections[0].colorbar.ax.get_ylabel() == f"rain\n({PERCENTILES})"


@pytest.mark.parametrize("count", [3, len(LEVEL_STYLES) + 2])
def test_a_category_colors_points_by_the_names_of_its_levels(count):
    levels = tuple(f"level {number}" for number in range(count))
    explanation = explain(levels=levels, rows=3 * count)
    ax = explanation.plot.scatter("income", color="state")
    named = min(count, len(LEVEL_STYLES))
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == [*levels[:named], *(["2 other levels"] if count > named else [])]
    assert ax.get_legend().get_title().get_text() == "state"
    assert len(ax.figure.axes) == 1  # no color bar, whose numbers would be codes
    points = [row for row in ax.collections if row.get_label() in texts]
    codes = explanation.data.sel(feature="state").values
    styles = set()
    for code, row in enumerate(points[:named]):
        chosen = explanation.data.sel(feature="income").values[codes == code]
        np.testing.assert_allclose(row.get_offsets()[:, 0], chosen)
        styles.add((tuple(row.get_facecolors()[0]), row.get_paths()[0].vertices.tobytes()))
    assert len(styles) == named
    if count > named:
        np.testing.assert_allclose(points[-1].get_facecolors()[0], plt.matplotlib.colors.to_rgba(NEUTRAL))


def test_a_beeswarm_paints_categories_gray_and_says_so():
    ax = explain().plot.beeswarm()
    ax.figure.canvas.draw()
    rows = dict(zip([label.get_text() for label in ax.get_yticklabels()], ax.collections, strict=True))
    np.testing.assert_allclose(
        np.unique(rows["state"].get_facecolors(), axis=0), [plt.matplotlib.colors.to_rgba(NEUTRAL)]
    )
    assert "gray: not a number" in ax.figure.axes[-1].get_ylabel()


@pytest.mark.parametrize("name", ["bar", "waterfall", "scatter"])
def test_one_row_is_enough(name):
    explanation = explain(rows=1)
    ax = getattr(explanation.plot, name)(**({"feature": LONG[0], "color": "income"} if name == "scatter" else {}))
    ax.figure.canvas.draw()
    assert shown(ax.get_xticklabels())


def test_lines_and_titles_can_be_seen_in_a_dark_style():
    with plt.style.context("dark_background"):
        ax = explain().plot.waterfall(0)
        intervals = ax.collections[-1].get_colors()[0]
    assert intervals[:3].min() > 0.9
    assert plt.matplotlib.colors.to_rgb(ax.title.get_color()) == (1.0, 1.0, 1.0)


def test_nodes_of_a_graph_with_long_names_do_not_overlap():
    graph = CausalDAG([(LONG[0], LONG[1]), (LONG[1], "state"), (LONG[0], "state"), ("income", "state")])
    ax = plots.causal_graph(graph)
    ax.figure.canvas.draw()
    circles = ax.collections[0]
    places = ax.transData.transform(circles.get_offsets())
    across = np.sqrt(circles.get_sizes()[0]) * ax.figure.dpi / 72
    assert min(np.linalg.norm(one - other) for one, other in itertools.combinations(places, 2)) > across
    for text in ax.texts:
        assert text.get_window_extent().width <= across
