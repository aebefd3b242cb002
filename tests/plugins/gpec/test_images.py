"""Bounds of contributions are painted on the pixels of their groups."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest

from kpp import Explanation
from kpp_gpec import interval_bounds, plot_interval_bounds

RNG = np.random.default_rng(0)
VALUES, VARIANCE = RNG.normal(size=(2, 3)), RNG.uniform(size=(2, 3))
# On an image of 2 by 3: the first column, the pixel at the lower right, and the rest.
GROUPS = {"left": ["x0", "x3"], "rest": ["x1", "x2", "x4"]}
PLAYER = np.array([[0, 1, 1], [0, 1, 2]])


def explain(values=VALUES, variance=VARIANCE, groups=GROUPS, **options):
    data = np.column_stack([np.full((2, 2), np.nan), [0.5, 0.6]])
    predictions = np.zeros(values.shape[:1] + values.shape[2:])
    return Explanation.create(
        values,
        0.0,
        predictions,
        data,
        feature_names=["left", "rest", "x5"],
        variance=variance,
        groups=groups,
        **options,
    )


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_bounds_are_those_of_normal_laws():
    lower, upper = interval_bounds(explain(), (2, 3))
    # The normal distribution's 0.975 quantile.
    np.testing.assert_allclose(upper, (VALUES + 1.959964 * np.sqrt(VARIANCE))[:, PLAYER], rtol=1e-6)
    np.testing.assert_allclose(lower, (VALUES - 1.959964 * np.sqrt(VARIANCE))[:, PLAYER], rtol=1e-6)
    assert interval_bounds(explain(), (2, 3), probability=0.5).shape == (2, 2, 2, 3)


def test_one_output_is_chosen():
    values = np.stack([VALUES, 10 * VALUES], axis=-1)
    explanation = explain(values, np.zeros_like(values), output_names=["a", "b"])
    np.testing.assert_allclose(interval_bounds(explanation, (2, 3), output="b")[0], 10 * VALUES[:, PLAYER])


def test_the_figure_shows_images_and_both_bounds():
    images = RNG.uniform(size=(2, 6))
    figure = plot_interval_bounds(explain(), images, (2, 3))
    panels = [ax for ax in figure.axes if ax.images]
    assert len(panels) >= 6
    shown = [np.asarray(ax.images[0].get_array()) for ax in panels[:6]]
    lower, upper = interval_bounds(explain(), (2, 3))
    expected = [*images.reshape(2, 2, 3), *upper, *lower]
    for found, picture in zip(shown, expected, strict=True):
        np.testing.assert_allclose(found, picture)
    for i in range(2):
        limits = [panels[row + i].images[0].get_clim() for row in (2, 4)]
        assert limits[0] == limits[1]
        assert limits[0][1] == pytest.approx(max(np.abs(lower[i]).max(), np.abs(upper[i]).max()))
    assert panels[2].get_ylabel() == "upper, 95%"


def test_outputs_may_differ_between_images():
    values = np.stack([VALUES, 10 * VALUES], axis=-1)
    explanation = explain(values, np.zeros_like(values), output_names=["a", "b"])
    figure = plot_interval_bounds(explanation, np.zeros((2, 6)), (2, 3), output=["a", "b"])
    panels = [ax for ax in figure.axes if ax.images]
    np.testing.assert_allclose(panels[2].images[0].get_array(), VALUES[0][PLAYER])
    np.testing.assert_allclose(panels[3].images[0].get_array(), 10 * VALUES[1][PLAYER])


@pytest.mark.parametrize(
    ("explanation", "options", "message"),
    [
        (explain(variance=None), {}, "`explanation` must have a variance"),
        (explain(), {"output": "a"}, "`output` must be one of None, got 'a'"),
        (explain(), {"probability": 1.0}, "`probability` must be between 0 and 1"),
        (explain(groups={"left": ["x0", "x3"], "rest": ["x1"]}), {}, "`explanation` must be of 6 pixel values"),
        (explain(np.zeros((2, 3, 2)), np.zeros((2, 3, 2)), output_names=["a", "b"]), {}, "`output` must be one of"),
    ],
)
def test_what_does_not_fit_is_refused(explanation, options, message):
    with pytest.raises(ValueError, match=message):
        interval_bounds(explanation, (2, 3), **options)


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (np.zeros((2, 5)), {}, "`images` must have 6 columns"),
        (np.zeros((1, 6)), {}, "`explanation` and `images` must have the same number of rows, got 2 and 1"),
        (np.full((2, 6), np.nan), {}, "`images` .*NaN"),
        (
            np.zeros((2, 6)),
            {"output": ["a"]},
            "`explanation` and `output` must have the same number of rows, got 2 and 1",
        ),
    ],
)
def test_images_and_outputs_that_do_not_fit_are_refused(images, options, message):
    with pytest.raises(ValueError, match=message):
        plot_interval_bounds(explain(), images, (2, 3), **options)
