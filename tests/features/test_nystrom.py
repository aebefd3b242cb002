"""Nystrom against dense formulas, scikit-learn, and its own base kernel."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge

from kpp.explanations import resolve
from kpp.features import Nystrom
from kpp.functions import RKHSFunction
from kpp.kernels import RBF, Matern32

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(12, 3)), RNG.normal(size=(5, 3))
COEFFICIENTS = RNG.normal(size=(2, 3, 12))
LENGTHSCALE = jnp.array([0.8, 1.2, 2.0])


@eqx.filter_jit
def evaluate(kernel, x):
    return kernel(x, x), kernel.gram(x), kernel.diagonal(x), kernel.feature_map(x)


@pytest.mark.slow
def test_values_are_the_dense_formula(tolerance):
    base = RBF(LENGTHSCALE, 1.7)
    matrix, gram, diagonal, features = evaluate(Nystrom(base, Z), X)
    expected = np.asarray(base(X, Z)) @ np.linalg.solve(np.asarray(base.gram(Z)), np.asarray(base(X, Z)).T)
    np.testing.assert_allclose(matrix, expected, **tolerance())
    np.testing.assert_allclose(gram, expected, **tolerance())
    np.testing.assert_allclose(diagonal, np.diagonal(expected), **tolerance())
    assert features.shape == (12, 5)
    np.testing.assert_allclose(features @ features.T, expected, **tolerance())


@pytest.mark.slow
def test_is_exact_at_landmarks_and_below_the_kernel_elsewhere(tolerance):
    base = RBF(LENGTHSCALE, 1.7)
    gram = np.asarray(base.gram(X))
    matrix = np.asarray(evaluate(Nystrom(base, X[:5]), X)[0])
    np.testing.assert_allclose(matrix[:, :5], gram[:, :5], **tolerance())
    assert np.linalg.eigvalsh(gram - matrix)[0] > -1e-12  # a Schur complement
    np.testing.assert_allclose(evaluate(Nystrom(base, X), X)[0], gram, rtol=1e-8)  # as ill-conditioned as the matrix


@pytest.mark.slow
def test_agrees_with_scikit_learn(tolerance):
    gamma = 0.3
    theirs = Nystroem(gamma=gamma, n_components=5, random_state=0).fit(X)
    kernel = Nystrom(RBF(jnp.full(3, (2 * gamma) ** -0.5)), X[theirs.component_indices_])
    features = theirs.transform(X)
    np.testing.assert_allclose(evaluate(kernel, X)[0], features @ features.T, **tolerance())


@pytest.mark.slow
def test_a_linear_model_on_the_features_is_a_function_on_the_landmarks(tolerance):
    kernel = Nystrom(RBF(LENGTHSCALE), Z)
    targets = np.sin(X[:, :2])
    features = np.asarray(evaluate(kernel, X)[3])
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


@pytest.mark.nightly_variants("nested")
@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_unfolding_keeps_values_and_leaves_the_landmarks(name, tolerance):
    kernel, num_points = KERNELS[name]
    before, after, unfolded = with_unfolded(RKHSFunction(kernel, X, COEFFICIENTS[0, 0], 0.7), X)
    np.testing.assert_allclose(after, before, **tolerance(factor=100))
    assert unfolded.points.shape == (num_points, 3)
    assert len(unfolded.kernel.product_terms()) == 1


@eqx.filter_jit
def with_unfolded(function, x):
    return function(x), function.unfold()(x), function.unfold()


@pytest.mark.slow
def test_draws_share_the_landmarks_again(tolerance):
    function = RKHSFunction.over_draws(KERNELS["scaled"][0], X, COEFFICIENTS, 0.7, batch_shape=(2, 3))
    before, after, _ = with_unfolded(function, X)
    np.testing.assert_allclose(after, before, **tolerance(factor=100))
    assert function.unfold().points.shape == (5, 3)


@pytest.mark.slow
def test_landmarks_that_differ_between_draws_stay_apart(tolerance):
    kernel = Nystrom(RBF(jnp.ones((2, 3)), jnp.ones((2, 3))), RNG.normal(size=(2, 3, 5, 3)))
    function = RKHSFunction(kernel, X, COEFFICIENTS, batch_shape=(2, 3))
    before, after, unfolded = with_unfolded(function, X)
    assert unfolded.points.shape == function.unfold().points.shape == (2, 3, 5, 3)
    np.testing.assert_allclose(after, before, **tolerance(factor=100))


def test_unfolding_what_is_simple_returns_it():
    function = RKHSFunction.over_draws(2.0 * RBF(1.0) + Matern32(1.0), X, np.ones((1, 2, 12)), batch_shape=(1, 2))
    assert function.unfold() is function


@pytest.mark.slow
def test_explainers_get_the_base_kernel():
    function = RKHSFunction(KERNELS["nystrom"][0], X, COEFFICIENTS[0, 0], 0.2)
    unfolded = resolve(function, X[:2], "rkhs_function").function
    assert isinstance(unfolded.kernel, RBF)
    np.testing.assert_array_equal(unfolded.points, Z)
    assert resolve(function, X[:2], "callable").function is function
