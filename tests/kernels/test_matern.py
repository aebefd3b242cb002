"""Matern of any smoothness against SciPy's Bessel function, and against the closed forms with all derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import gammaln, kve

from kpp.kernels import Matern, Matern12, Matern32, Matern52
from kpp.kernels.points.matern import matern

CLOSED_FORMS = [(0.5, Matern12(0.6, 1.3)), (1.5, Matern32(0.6, 1.3)), (2.5, Matern52(0.6, 1.3))]
DISTANCES = np.array([1e-15, 1e-9, 1e-6, 1e-4, 0.01, 0.3, 1.0, 3.0, 10.0, 40.0])
values = jax.jit(matern)
slopes_in_nu = jax.jit(jax.vmap(jax.grad(matern, argnums=1), (0, None)))


@jax.jit
def derivatives(kernel, point, other):
    """The value of a kernel with its first and second derivatives by the first point."""
    of_point = lambda a: kernel.evaluate(a, other)  # noqa: E731
    return of_point(point), jax.grad(of_point)(point), jax.hessian(of_point)(point)


def by_bessel_function(t, nu):
    """The formula, by SciPy; scaled and in logarithms, so that nothing overflows."""
    root = np.sqrt(t)
    return np.exp(np.log(2) * (1 - nu) - gammaln(nu) + nu * np.log(root) + np.log(kve(nu, root)) - root)


@pytest.mark.slow_variants("0.05", "0.3", "0.5")
@pytest.mark.parametrize("nu", [0.05, 0.3, 0.5, 0.99, 1.0, 1.3, 2.0, 4.7, 12.0])
def test_values_and_slopes_in_nu_are_those_of_scipy(nu):
    t = DISTANCES**2
    # 1e-12: the power law at small distances (largest near nu = 1), and rounding of gammaln.
    np.testing.assert_allclose(values(t, nu), by_bessel_function(t, nu), rtol=0, atol=1e-12)
    step = 1e-5  # truncation 1e-10 times third derivatives, up to 30 at nu = 0.05; rounding 1e-15 / 1e-5
    difference = (by_bessel_function(t, nu + step) - by_bessel_function(t, nu - step)) / (2 * step)
    found = slopes_in_nu(t, nu)
    np.testing.assert_allclose(found[2:], difference[2:], rtol=0, atol=1e-7)
    # The error of the quadrature grows as the distance falls to the rounding error of points.
    np.testing.assert_allclose(found[:2], difference[:2], rtol=1e-6, atol=1e-5)


@pytest.mark.slow_variants("1/2", "5/2", "3/2")
@pytest.mark.parametrize(("nu", "closed_form"), CLOSED_FORMS, ids=["1/2", "3/2", "5/2"])
def test_values_and_derivatives_are_those_of_the_closed_forms(nu, closed_form, x):
    kernel = Matern(0.6, variance=1.3, nu=nu)
    for point in (x[0], x[2], x[0] + 1e-3):
        both = derivatives(kernel, point, x[0]), derivatives(closed_form, point, x[0])
        for found, expected in zip(*both, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.slow
def test_the_derivatives_in_nu_vanish_where_points_coincide():
    at_zero = lambda nu: matern(jnp.zeros(()), nu)  # noqa: E731
    first, second = jax.jit(lambda nu: (jax.grad(at_zero)(nu), jax.hessian(at_zero)(nu)))(1.3)
    assert first == 0.0
    assert abs(second) < 1e-14  # the first derivative is zero by cancellation of terms of order 1


@pytest.mark.slow_variants("0.5")
@pytest.mark.parametrize("nu", [0.5, 0.9, 1.7])
def test_nearly_equal_points_leave_the_matrix_positive_semi_definite(nu, compiled):
    x = np.repeat(np.linspace(0, 1, 4), 3)[:, None] + np.tile([0.0, 1e-15, 1e-7], 4)[:, None]
    # Entries have an error of 1e-13 near nu = 1, and there are twelve rows.
    assert np.linalg.eigvalsh(compiled.gram(Matern(0.5, nu=nu), x)).min() > -1e-12


def test_far_points_and_large_orders_are_finite():
    far = np.array([0.0, 2000.0, 1e300, *[np.inf] * 7])  # as many as `DISTANCES`, for the same programs
    for nu in (0.01, 1.0, 1000.0):
        # Nearly RBF at the order 1000, with t = 2 nu r^2 and a relative error of the order of 1 / nu.
        limit = np.exp(-2000 / 4000) if nu == 1000.0 else 0.0
        np.testing.assert_allclose(values(far, nu), [1.0, limit, *[0.0] * 8], atol=1e-3)
        assert np.isfinite(slopes_in_nu(far, nu)).all()


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="`nu` must be positive"):
        Matern(nu=0.0)
    with pytest.raises(ValueError, match="`nu`"):
        Matern(nu=np.inf)
    with pytest.raises(ValueError, match="`nu`"):
        Matern(nu=dist.Normal(0.0, 1.0))
