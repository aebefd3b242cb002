"""Explanations of the same points side by side, without a warning."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from kpp import plots
from kpp.explanations import Explanation, compare

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def pair(make):
    first, second = make(True, law="within"), make()
    return {"posterior": first, "point": second}


def test_numbers_are_what_numpy_and_scipy_make_of_the_means(pair):
    table = compare(pair)
    first, second = (explanation.mean().values.values for explanation in pair.values())
    assert table["values"].dims == ("explanation", "instance", "feature")
    assert table.coords["explanation"].values.tolist() == ["posterior", "point"]
    np.testing.assert_allclose(table["values"], np.stack([first, second]), rtol=1e-14)
    np.testing.assert_allclose(table["importance"][1], np.abs(second).mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(table["difference"][0, 1], (first - second).mean(axis=0), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(table["distance"][0, 1], np.linalg.norm(first - second, axis=1), rtol=1e-12)
    expected = [scipy.stats.pearsonr(a, b).statistic for a, b in zip(first, second, strict=True)]
    np.testing.assert_allclose(table["correlation"][0, 1], expected, rtol=1e-10)
    np.testing.assert_allclose(table["correlation"][1, 1], 1.0, rtol=1e-12)
    assert table["base_values"].dims == ("explanation", "instance")
    assert float(table["distance"][0, 0].max()) == 0.0


def test_outputs_are_kept(make):
    table = compare({"a": make(outputs=True), "b": make(True, outputs=True), "c": make(outputs=True)})
    assert table["distance"].shape == (3, 3, 5, 2)
    assert table["importance"].dims == ("explanation", "feature", "output")


def test_contributions_that_do_not_vary_have_correlation_zero():
    data = np.zeros((2, 3))
    flat = Explanation.create(np.ones((2, 3)), 0.0, np.full(2, 3.0), data)
    table = compare({"flat": flat, "other": Explanation.create(np.arange(6.0).reshape(2, 3), 0.0, [3.0, 12.0], data)})
    assert table["correlation"][0].values.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_features_without_a_value_are_the_same(make_groups):
    table = compare({"a": make_groups(), "b": make_groups()})
    assert float(table["distance"].max()) == 0.0


def test_what_cannot_be_compared_is_refused(make, points):
    with pytest.raises(ValueError, match="at least two"):
        compare({"one": make()})
    with pytest.raises(ValueError, match="the same instances"):
        compare({"a": make(), "b": make()[:2]})
    with pytest.raises(ValueError, match="the same outputs"):
        compare({"a": make(), "b": make(outputs=True)})
    moved = make().dataset.assign(data=make().data + 1.0)
    with pytest.raises(ValueError, match="the data of 'b' differ"):
        compare({"a": make(), "b": Explanation(moved)})


def test_the_plot_has_a_bar_for_each_explanation_and_feature(pair, ax):
    table = compare(pair)
    assert plots.comparison(table["values"], max_features=2, ax=ax) is ax
    ax.figure.canvas.draw()
    shown = [text.get_text() for text in ax.get_yticklabels()]
    assert len(shown) == 2
    widths = [bar.get_width() for bar in ax.patches]
    np.testing.assert_allclose(widths, table["importance"].sel(feature=shown).values.ravel(), rtol=1e-12)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["posterior", "point"]
