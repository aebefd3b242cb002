"""Bisection against SciPy's root finder, its number of rounds, and what it refuses."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from kpp_gpec.boundary.brackets import CountedMargin, bisect


def wave(x):
    return np.sin(3.0 * x[:, 0]) + x[:, 1] ** 3 - 0.2


def pairs(margin, count=40, d=2, seed=0):
    """Return points inside and outside, paired at random."""
    x = np.random.default_rng(seed).normal(size=(40 * count, d))
    is_inside = margin(x) > 0.0
    return x[is_inside][:count], x[~is_inside][:count]


def test_finds_the_roots_that_scipy_finds_on_segments_with_one_root():
    inside, outside = pairs(wave)
    ts = np.linspace(0.0, 1.0, 400)
    along = np.array([wave(a + ts[:, None] * (b - a)) for a, b in zip(inside, outside, strict=True)])
    once = (np.diff(along > 0.0, axis=1).sum(axis=1) == 1).nonzero()[0]
    assert len(once) > 10
    found = bisect(wave, inside[once], outside[once], width=1e-10)
    for a, b, middle in zip(inside[once], outside[once], found.midpoints, strict=True):
        t = brentq(lambda t, a=a, b=b: wave((a + t * (b - a))[None])[0], 0.0, 1.0, xtol=1e-14)
        # half the width, and SciPy's own error
        assert np.linalg.norm(a + t * (b - a) - middle) <= 0.5e-10 + 1e-13


@pytest.mark.parametrize("width", [1e-2, 1e-6, 1e-12])
def test_ends_on_opposite_sides_within_the_width_in_few_calls(width):
    inside, outside = pairs(wave)
    margin = CountedMargin(wave)
    found = bisect(margin, inside, outside, width)
    assert (wave(found.inside) > 0.0).all() and (wave(found.outside) <= 0.0).all()
    assert (found.widths <= width).all()
    # one call checks the sides, and each round halves all segments
    longest = np.linalg.norm(inside - outside, axis=1).max()
    assert margin.num_calls == 1 + math.ceil(math.log2(longest / width))
    assert found.num_pairs == len(inside)


@pytest.mark.parametrize("jump", [1e-12, 1.0, 1e12])
def test_a_step_is_found_to_the_width_whatever_its_height(jump):
    def step(x):
        return np.where(x[:, 0] > 0.3, jump, -jump)

    inside, outside = pairs(step)
    found = bisect(step, inside, outside, width=1e-9)
    # The crossing has the coordinate .3, and no end is further from it than the segment is long.
    np.testing.assert_allclose(found.midpoints[:, 0], 0.3, rtol=0, atol=1e-9)


def test_a_zero_counts_as_outside():
    found = bisect(lambda x: np.maximum(x[:, 0], 0.0), np.array([[1.0]]), np.array([[-4.0]]), width=1e-9)
    assert abs(found.midpoints[0, 0]) < 1e-9


def test_stops_where_no_number_lies_between_the_ends():
    inside, outside = np.array([[1e8 + 1.0]]), np.array([[1e8]])
    found = bisect(lambda x: x[:, 0] - (1e8 + 0.3), inside, outside, width=1e-12)
    # neighboring floating-point numbers
    assert found.widths[0] == np.spacing(1e8)


def test_takes_no_pairs():
    assert bisect(wave, np.zeros((0, 2)), np.zeros((0, 2))).midpoints.shape == (0, 2)


@pytest.mark.parametrize(
    ("margin", "inside", "outside", "width", "message"),
    [
        (wave, np.zeros((2, 2)), np.zeros((1, 2)), 1e-6, "`inside` and `outside` must have the same shape"),
        (wave, np.zeros(2), np.zeros(2), 1e-6, "`inside` and `outside` must have the same shape"),
        (wave, np.ones((1, 2)), np.zeros((1, 2)), 0.0, "`width` must be positive"),
        (wave, np.zeros((1, 2)), np.zeros((1, 2)), 1e-6, "1 of `inside` and 0 of `outside` on the wrong side"),
        (lambda x: np.ones(len(x)), np.ones((3, 2)), np.zeros((3, 2)), 1e-6, "0 of `inside` and 3 of `outside`"),
        (lambda x: np.full(len(x), np.nan), np.ones((1, 2)), np.zeros((1, 2)), 1e-6, "must return finite numbers"),
        (lambda x: x, np.ones((1, 2)), np.zeros((1, 2)), 1e-6, "`margin` must return one number per point"),
    ],
)
def test_says_what_is_wrong(margin, inside, outside, width, message):
    with pytest.raises(ValueError, match=message):
        bisect(margin, inside, outside, width)
