"""Nystrom against dense formulas, scikit-learn, and its own base kernel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge

import kpp
from kpp.features import Nystrom
from kpp.functions import RKHSFunction
from kpp.kernels import RBF, Matern32

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(12, 3)), RNG.normal(size=(5, 3))
LENGTHSCALE = jnp.array([0.8, 1.2, 2.0])


def dense(kernel, x1, x2):
    cross = np.linalg.solve(np.asarray(kernel.gram(Z)), np.asarray(kernel(Z, x2)))
    return np.asarray(kernel(x1, Z)) @ cross


def test_values_are_the_dense_formula(tolerance):
    base = RBF(LENGTHSCALE, 1.7)
    kernel = Nystrom(base, Z)
    np.testing.assert_allclose(kernel(X, X[:4]), dense(base, X, X[:4]), **tolerance())
    np.testing.assert_allclose(kernel.diagonal(X), np.diagonal(dense(base, X, X)), **tolerance())
    features = np.asarray(kernel.feature_map(X))
    assert features.shape == (12, 5)
    np.testing.assert_allclose(features @ features.T, kernel.gram(X), **tolerance())


def test_is_exact_at_landmarks_and_below_the_kernel_elsewhere(tolerance):
    base = RBF(LENGTHSCALE, 1.7)
    np.testing.assert_allclose(Nystrom(base, Z)(X, Z), base(X, Z), **tolerance())
    np.testing.assert_allclose(Nystrom(base, X).gram(X), base.gram(X), rtol=1e-8, atol=1e-8)  # as ill-conditioned as K
    residual = np.asarray(base.gram(X)) - np.asarray(Nystrom(base, Z).gram(X))
    assert np.linalg.eigvalsh(residual)[0] > -1e-12  # a Schur complement


def test_agrees_with_scikit_learn(tolerance):
    gamma = 0.3
    theirs = Nystroem(gamma=gamma, n_components=5, random_state=0).fit(X)
    kernel = Nystrom(RBF((2 * gamma) ** -0.5), X[theirs.component_indices_])
    features = theirs.transform(X)
    np.testing.assert_allclose(kernel.gram(X), features @ features.T, **tolerance())


def test_a_linear_model_on_the_features_is_a_function_on_the_landmarks(tolerance):
    kernel = Nystrom(RBF(LENGTHSCALE), Z)
    targets = np.sin(X[:, :2])
    features = np.asarray(kernel.feature_map(X))
    model = Ridge(alpha=0.1).fit(features, targets)
    function = kernel.function(model.coef_.T, model.intercept_)
    np.testing.assert_allclose(function(X), model.predict(features), **tolerance())
    assert isinstance(function.kernel, RBF)
    np.testing.assert_array_equal(function.points, Z)
    with pytest.raises(ValueError, match=r"`weights` must have one row for each of the 5 landmarks, got shape \(4,\)"):
        kernel.function(np.ones(4))


KERNELS = {
    "nystrom": (Nystrom(RBF(LENGTHSCALE), Z), 5),
    "scaled": (2.5 * Nystrom(RBF(LENGTHSCALE), Z), 5),
    "selected": ((2.5 * Nystrom(RBF(1.1), Z[:, :2])).on((2, 0)), 5),
    "nested": (Nystrom(Nystrom(RBF(LENGTHSCALE), Z), X[:3]), 5),
}


@pytest.mark.parametrize("name", KERNELS)
def test_unfolding_keeps_values_and_leaves_the_landmarks(name, tolerance):
    kernel, num_points = KERNELS[name]
    draws = np.random.default_rng(1).normal(size=(2, 3, 12))
    for function in (
        RKHSFunction(kernel, X, draws[0, 0], 0.7),
        RKHSFunction.over_draws(kernel, X, draws, 0.7, batch_shape=(2, 3)),
    ):
        unfolded = function.unfold()
        np.testing.assert_allclose(unfolded(X), function(X), **tolerance(factor=100))
        assert unfolded.points.shape == (num_points, 3)  # shared by all draws again
        assert len(unfolded.kernel.product_terms()) == 1


def test_landmarks_that_differ_between_draws_stay_apart(tolerance):
    landmarks = RNG.normal(size=(1, 2, 5, 3))
    kernel = Nystrom(RBF(jnp.ones((1, 2)), jnp.ones((1, 2))), landmarks)
    function = RKHSFunction(kernel, X, RNG.normal(size=(1, 2, 12)), batch_shape=(1, 2))
    unfolded = function.unfold()
    assert unfolded.points.shape == (1, 2, 5, 3)
    np.testing.assert_allclose(unfolded(X), function(X), **tolerance(factor=100))


def test_unfolding_what_is_simple_returns_it():
    function = RKHSFunction.over_draws(2.0 * RBF(1.0) + Matern32(1.0), X, np.ones((1, 2, 12)), batch_shape=(1, 2))
    assert function.unfold() is function


def test_explains_as_the_base_kernel_does(tolerance):
    kernel = Nystrom(RBF(LENGTHSCALE), Z)
    coefficients = RNG.normal(size=12)
    function = RKHSFunction(kernel, X, coefficients, 0.2)
    beta = np.linalg.solve(np.asarray(RBF(LENGTHSCALE).gram(Z)), np.asarray(RBF(LENGTHSCALE)(Z, X)) @ coefficients)
    plain = RKHSFunction(RBF(LENGTHSCALE), Z, beta, 0.2)
    found, expected = (
        kpp.explain(f, X[:2], value_function="interventional", background=X[:4]).values for f in (function, plain)
    )
    np.testing.assert_allclose(found, expected, **tolerance(factor=100))


def test_hyperparameters_of_the_base_kernel_have_gradients():
    def total(lengthscale):
        return jnp.sum(Nystrom(RBF(lengthscale), Z)(X, X))

    step = 1e-5
    difference = (total(1.0 + step) - total(1.0 - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(total)(1.0), difference, rtol=1e-6)
