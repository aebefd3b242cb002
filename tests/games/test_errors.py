"""Bad input is refused with the argument's name, what came, and what is needed."""

from __future__ import annotations

import numpy as np
import pytest

from kpp.functions import RKHSFunction
from kpp.games import (
    Baseline,
    Interventional,
    all_coalitions,
    gauss_legendre,
    interventional_shapley,
    shapley_values,
    shapley_values_from_table,
    shapley_weights,
)
from kpp.kernels import RBF, Matern52

FUNCTION = RKHSFunction(RBF(), np.eye(3), np.ones(3))
X = np.eye(3)[:2]
MANY = RKHSFunction(Matern52(), np.eye(30), np.ones(30))

CASES = {
    "one-dimensional x": (lambda: interventional_shapley(FUNCTION, np.ones(3), X), r"`x` must have shape \(n, d\)"),
    "NaN in x": (lambda: interventional_shapley(FUNCTION, X * np.nan, X), "`x` must be finite"),
    "too many columns": (lambda: interventional_shapley(FUNCTION, np.ones((2, 4)), X), "`x` must have 3 columns"),
    "empty background": (lambda: Interventional(X[:0]), "`background` must have at least one row"),
    "other background": (lambda: interventional_shapley(FUNCTION, X, np.ones((2, 4))), "`background` must have 3"),
    "unknown method": (
        lambda: shapley_values(Baseline(), FUNCTION, X, method="fast"),
        "`method` must be one of .'auto'",
    ),
    "batch size 0": (lambda: shapley_values(Baseline(), FUNCTION, X, batch_size=0), "`batch_size` must be at least 1"),
    "numbers as coalitions": (lambda: Baseline()(FUNCTION, X, np.ones((2, 3))), "`coalitions` must be booleans"),
    "coalitions of four": (lambda: Baseline()(FUNCTION, X, np.ones((2, 4), bool)), "`coalitions` must be booleans"),
    "30 features enumerated": (lambda: all_coalitions(30), "`num_features` must be from 1 to 20"),
    "a table of 6 rows": (lambda: shapley_values_from_table(np.ones(6)), "`values` must have 2"),
    "no features": (lambda: shapley_weights(0), "`num_features` must be at least 1"),
    "no nodes": (lambda: gauss_legendre(0), "`num_nodes` must be at least 1"),
    "enumeration of 30 features": (
        lambda: shapley_values(Interventional(np.eye(30)), MANY, np.eye(30), method="enumeration"),
        "at most 20 features or groups, got 30",
    ),
    "a function that sums": (
        lambda: interventional_shapley(np.sum, X, X),
        "`function` must return one prediction per point",
    ),
}


@pytest.mark.parametrize("case", list(CASES))
def test_values_are_refused(case):
    call, message = CASES[case]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: interventional_shapley(MANY, np.eye(30), np.eye(30)), "RKHSFunction with kernel Matern52"),
        (lambda: interventional_shapley(np.sin, X, X, method="quadrature"), "products over the features"),
        (
            lambda: Baseline()(RKHSFunction(Matern52(), X, np.ones(2)), X, all_coalitions(3)),
            "not a sum of product kernels",
        ),
    ],
)
def test_games_that_are_no_products_are_refused(call, message):
    with pytest.raises(TypeError, match=message):
        call()
