"""Derivatives are those of finite differences, and those of the formula where points coincide."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.kernels import RBF, Matern12, Matern32, Matern52, Periodic, RationalQuadratic

STEP = 1e-6

# The second derivative of k(x, x') in x where x = x', at lengthscale 1: Taylor expansion of the formulas.
CURVATURES = {
    "rbf": (RBF(0.5, 2.0), -1.0),
    "matern32": (Matern32(0.5, 2.0), -3.0),
    "matern52": (Matern52(0.5, 2.0), -5.0 / 3.0),
    "rational_quadratic": (RationalQuadratic(0.5, variance=2.0, alpha=0.8), -1.0),
    "periodic": (Periodic(0.5, variance=2.0, period=1.7), -4.0 * (np.pi / 1.7) ** 2),
}


@eqx.filter_jit
def slope_and_difference(function):
    """The derivative of a function of one number at 0, by AD and by a central difference."""
    return jax.grad(function)(0.0), (function(STEP) - function(-STEP)) / (2 * STEP)


@pytest.mark.slow_variants("sum_of_selections")
def test_gradients_in_the_parameters_are_finite_differences(kernel, x, weights, arrays_of):
    arrays, restore = arrays_of(kernel)
    # An infinite lengthscale, of a feature that is left out, stays where it is.
    direction = jax.tree.map(lambda leaf: np.where(np.isfinite(leaf), leaf, 0.0), arrays)

    def total(step):
        moved = jax.tree.map(lambda leaf, change: leaf + step * change, arrays, direction)
        return jnp.sum(weights * restore(moved).gram(x))

    slope, difference = slope_and_difference(total)
    # Truncation 1e-12 and rounding 1e-16 / 1e-6, times sums of size ten.
    np.testing.assert_allclose(slope, difference, rtol=1e-7, atol=1e-8)


@pytest.mark.slow_variants("matern32", "matern52", "rational_quadratic", "rbf")
@pytest.mark.parametrize("name", CURVATURES)
def test_gradients_in_the_points_are_finite_differences(name, x, weights):
    kernel = CURVATURES[name][0]
    direction = np.sin(5 * x)
    slope, difference = slope_and_difference(lambda step: jnp.sum(weights * kernel(x + step * direction, x)))
    np.testing.assert_allclose(slope, difference, rtol=1e-7, atol=1e-7)


@pytest.mark.slow_variants("matern32-by_difference", "rbf-by_difference", "matern32-by_product", "rbf-by_product")
@pytest.mark.parametrize("d", [3, 40], ids=["by_difference", "by_product"])
@pytest.mark.parametrize(
    "name", [name if name in ("rbf", "matern32") else pytest.param(name, marks=pytest.mark.slow) for name in CURVATURES]
)
def test_first_and_second_derivatives_where_points_coincide(name, d):
    kernel, curvature = CURVATURES[name]
    point = jnp.linspace(-1.0, 1.0, d)
    expected = 2.0 * curvature / 0.5**2 * np.eye(d)

    @jax.jit
    def derivatives(point):
        in_batch = lambda a: kernel(a[None, :], point[None, :])[0, 0]  # noqa: E731
        alone = lambda a: kernel.evaluate(a, point)  # noqa: E731
        return [(jax.grad(f)(point), jax.hessian(f)(point)) for f in (in_batch, alone)]

    for gradient, hessian in derivatives(point):
        np.testing.assert_allclose(gradient, np.zeros(d), atol=1e-12)
        np.testing.assert_allclose(hessian, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.slow_variants("40")
@pytest.mark.parametrize("d", [40, pytest.param(3, marks=pytest.mark.slow)])
def test_second_derivatives_of_a_gram_matrix_with_duplicates(d):
    """By AD of the matrix of distances against AD of a plain RBF, which is smooth as it stands."""
    x = np.random.default_rng(0).normal(size=(5, d))
    x[1] = x[0]
    x = jnp.asarray(x)

    def plain(scale):
        return jnp.sum(jnp.exp(-0.5 * jnp.sum(jnp.square(scale * (x[:, None] - x[None])), axis=-1)))

    found = jax.jit(jax.grad(jax.grad(lambda s: jnp.sum(RBF(1 / s).gram(x)))))(0.3)
    np.testing.assert_allclose(found, jax.jit(jax.grad(jax.grad(plain)))(0.3), rtol=1e-10)


def test_the_gradient_of_matern12_at_zero_distance_is_zero(x, compiled):
    gradient = jax.jit(jax.grad(lambda a: Matern12(0.5).evaluate(a, x[0])))
    np.testing.assert_array_equal(gradient(x[0]), np.zeros(3))
    assert np.all(gradient(x[2]) != 0)


@pytest.mark.slow_variants("Matern12(lengthscale=0.5, variance=1.0)", "Matern32(lengthscale=0.5, variance=1.0)")
@pytest.mark.parametrize("kernel", [Matern12(0.5), Matern32(0.5), Matern52(0.5)], ids=repr)
def test_matern_is_finite_and_decays_far_away(kernel):
    far = jnp.array([[0.0], [1e4]])
    value, gradient = jax.jit(jax.value_and_grad(lambda s: jnp.sum(type(kernel)(s).gram(far))))(0.5)
    assert value == 2.0
    assert gradient == 0.0


def test_a_feature_left_out_has_a_gradient_of_zero(x):
    mask = np.array([True, False, True])
    gradient = jax.jit(jax.grad(lambda s: jnp.sum(RBF(s).restrict(mask).gram(x))))(jnp.array([0.5, 1.0, 3.0]))
    assert np.all(np.isfinite(gradient))
    assert gradient[1] == 0.0
    assert np.all(np.asarray(gradient)[mask] > 0.0)
