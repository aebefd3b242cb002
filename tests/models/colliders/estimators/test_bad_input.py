"""What the projected regressor refuses, and what it warns of."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

from kpp.causal import Independence
from kpp.kernels import RBF
from kpp_models import KernelRidge
from kpp_models.estimators import ProjectedRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3))
X[:, 2] += X[:, 1]
Y = X[:, 0] + RNG.normal(size=30)
TWO = (Independence("y", (1,)), Independence("y", (2,)))
DIFFERENT = (Independence("y", (1,), (0,)), Independence("y", (2,)))

REFUSED = {
    "estimator": ({"estimator": "forest"}, TypeError, "`estimator` must be a scikit-learn estimator, or with `prefit"),
    "a model of kpp": ({"estimator": KernelRidge(RBF(1.0), 1.0)}, TypeError, "must be a scikit-learn estimator"),
    "a class": ({"estimator": LinearRegression}, TypeError, "must be a scikit-learn estimator"),
    "a callable that is not prefit": ({"estimator": np.sum}, TypeError, "with `prefit=True` anything that predicts"),
    "no predictor": ({"estimator": 3, "prefit": True}, TypeError, "`estimator` must have `predict`, be a kpp.Fit or"),
    "not fitted": ({"estimator": LinearRegression(), "prefit": True}, NotFittedError, "LinearRegression"),
    "shape": (
        {"estimator": lambda x: x, "prefit": True},
        ValueError,
        r"`estimator` must predict the shape \(30,\), got \(30, 3\)",
    ),
    "NaN": ({"estimator": lambda x: x[:, 0] * np.nan, "prefit": True}, ValueError, "finite numbers, got 30 others"),
    "conditional": (
        {"conditional": "tree"},
        ValueError,
        "`conditional` must be one of .'linear', 'kernel-ridge', 'for",
    ),
    "conditional class": (
        {"conditional": LinearRegression},
        TypeError,
        "`conditional` must be a name or",
    ),
    "baseline": ({"baseline": "logistic"}, ValueError, "`baseline` must be one of .'linear'"),
    "several": ({"several": "both"}, ValueError, "`several` must be one of .*, got 'both'"),
    "jointly": (
        {"several": "jointly", "collider": DIFFERENT},
        ValueError,
        "needs statements that are given the same columns",
    ),
    "a forest jointly": (
        {"several": "jointly", "collider": TWO, "conditional": "forest"},
        ValueError,
        "`several='jointly'` needs a sum of functions",
    ),
    "folds": ({"gain_folds": 1}, ValueError, "`gain_folds` must be at least 2, or None, got 1"),
    "cycles": ({"max_cycles": 0}, ValueError, "`max_cycles` must be at least 1, got 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_arguments_are_refused(name):
    options, error, message = REFUSED[name]
    options = {"estimator": LinearRegression(), "collider": TWO[0], "check": False, **options}
    with pytest.raises(error, match=message):
        ProjectedRegressor(**options).fit(X, Y)


DATA = {
    "rows": ((X, Y[:-1]), "inconsistent numbers of samples"),
    "NaN": ((X * np.nan, Y), "NaN"),
    "NaN without labels": ((X, Y, X * np.nan), "NaN"),
    "columns without labels": ((X, Y, X[:, :2]), "X has 2 features, but ProjectedRegressor is expecting 3"),
    "one row": ((X[:1], Y[:1]), "minimum of 2 is required"),
    "text": ((X, np.repeat("a", 30)), "`y` must hold real numbers, got .*text"),
}


@pytest.mark.parametrize("name", DATA)
def test_bad_data_are_refused(name):
    data, message = DATA[name]
    with pytest.raises(ValueError, match=message):
        ProjectedRegressor(LinearRegression(), collider=TWO, check=False).fit(*data)


def test_an_unfinished_cycle_gives_a_warning():
    model = ProjectedRegressor(
        KNeighborsRegressor(), collider=TWO, check=False, gain_folds=None, max_cycles=1, random_state=0
    )
    with pytest.warns(ConvergenceWarning, match="after `max_cycles` = 1 cycles; `tol` is 0.0001"):
        model.fit(X, Y)


def test_a_single_statement_needs_no_second_cycle():
    conditional = DecisionTreeRegressor(min_samples_leaf=5, random_state=0)
    model = ProjectedRegressor(
        KNeighborsRegressor(), collider=TWO[0], conditional=conditional, check=False, max_cycles=1
    ).fit(X, Y)
    assert model.projection_.num_cycles == 1


@pytest.mark.slow
def test_the_warning_of_a_false_statement_names_it():
    x, noise = np.random.default_rng(0).normal(size=(2, 60, 2))
    with pytest.warns(UserWarning, match=r"`collider` says y _\|\|_ 0, but the labeled rows speak against it"):
        model = ProjectedRegressor(
            LinearRegression(), collider=Independence("y", (0,)), gain_folds=None, random_state=0
        ).fit(x, 3 * x[:, 0] + noise[:, 0])
    assert model.independence_tests_[0].p_value < 0.01


def test_arrays_of_jax_are_arrays():
    options = {"collider": TWO[0], "check": False, "gain_folds": None}
    found = (
        ProjectedRegressor(LinearRegression(), **options).fit(jnp.asarray(X), jnp.asarray(Y)).predict(jnp.asarray(X))
    )
    np.testing.assert_array_equal(found, ProjectedRegressor(LinearRegression(), **options).fit(X, Y).predict(X))
