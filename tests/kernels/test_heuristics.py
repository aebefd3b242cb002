"""The median heuristic is the median over pairs, found without forming them."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist

from kpp.kernels import median_heuristic


def by_all_pairs(column):
    """The median of the positive distances, over all pairs."""
    distances = pdist(column[:, None])
    return np.median(distances[distances > 0])


@pytest.mark.parametrize("n", [2, 3, 4, 50, 301])
def test_the_median_over_all_pairs(n):
    x = np.random.default_rng(n).normal(size=(n, 3)) * [1e-6, 1.0, 1e6] + [0.0, 1e3, 0.0]
    np.testing.assert_allclose(median_heuristic(x), [by_all_pairs(column) for column in x.T], rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_ties_do_not_count(seed):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.integers(0, 4, 40), np.arange(40) == 7, np.repeat(rng.normal(size=10), 4)]).astype(float)
    expected = [by_all_pairs(column) for column in x.T]
    assert expected[1] == 1.0
    np.testing.assert_allclose(median_heuristic(x), expected, rtol=1e-12)


def test_many_rows():
    """Of n = 20000 uniform numbers the distance has the distribution function 2t - t^2; its median is 1 - 1/sqrt(2)."""
    x = np.random.default_rng(0).uniform(size=(20000, 1))
    np.testing.assert_allclose(median_heuristic(x), 1 - np.sqrt(0.5), atol=0.01)


def test_constant_features_get_one_and_a_single_warning(caplog):
    x = np.column_stack([np.full(5, 3.0), np.arange(5.0), np.zeros(5)])
    with caplog.at_level(logging.WARNING, logger="kpp"):
        np.testing.assert_array_equal(median_heuristic(x), [1.0, 2.0, 1.0])
    assert [record.getMessage() for record in caplog.records] == [
        "median_heuristic: constant features get the lengthscale 1: columns 0, 2"
    ]


def test_a_single_row_is_constant(caplog):
    np.testing.assert_array_equal(median_heuristic(np.array([[1.0, 2.0]])), [1.0, 1.0])
    assert len(caplog.records) == 1


def test_data_frames():
    np.testing.assert_array_equal(median_heuristic(pd.DataFrame({"a": [0, 1, 3], "b": [0.0, 0.5, 0.5]})), [2.0, 0.5])


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones(3), r"`x\[:, None\]`"),
        (np.ones((0, 2)), "at least one row"),
        (np.array([[np.nan], [1.0]]), "1 NaN"),
    ],
)
def test_bad_points(x, message):
    with pytest.raises(ValueError, match=message):
        median_heuristic(x)
