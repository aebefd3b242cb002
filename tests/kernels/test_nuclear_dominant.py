"""NuclearDominant against SciPy's quadrature, compositions of kernel matrices on a grid, and reference vectors."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.integrate import dblquad, quad

from kpp.kernels import RBF, Matern32, NuclearDominant

LENGTHSCALES, WIDTHS, VARIANCE = np.array([0.7, 1.6]), np.array([1.2, 2.5]), 1.3
KERNEL = NuclearDominant(RBF(LENGTHSCALES, VARIANCE), WIDTHS)
X1 = np.array([[0.3, -1.0], [-0.8, 0.4], [2.1, 0.0]])
X2 = np.array([[-0.5, 0.9], [1.0, -2.0]])

ORDERS = (1, 2, 3, 5)

chains = eqx.filter_jit(lambda kernel, a, b: [kernel.chain(order, a, b) for order in ORDERS])
norm = eqx.filter_jit(lambda kernel, d: kernel.squared_norm(d))


def k(j, a, b):
    """The base in one feature, without the variance."""
    return np.exp(-0.5 * ((a - b) / LENGTHSCALES[j]) ** 2)


def density(j, u):
    return np.exp(-0.5 * (u / WIDTHS[j]) ** 2)


def by_grid(order, j, a, b):
    """The chain as a product of kernel matrices on a grid: the trapezoidal rule, exact to rounding for Gaussians."""
    u = np.linspace(-12.0, 12.0, 241) * WIDTHS[j]
    weight = density(j, u) * (u[1] - u[0])
    row = k(j, a[:, None], u[None, :]) * weight
    for _ in range(order - 1):
        row = (row @ k(j, u[:, None], u[None, :])) * weight
    return row @ k(j, u[:, None], b[None, :])


@pytest.mark.slow
def test_reference_vectors(root):
    vectors = np.load(root / "tests" / "data" / "bayesimp.npz")
    kernel = NuclearDominant(RBF(vectors["in_ly"]), vectors["in_eta"])
    found = chains(kernel, vectors["in_Y"], vectors["in_Yt"])
    for name, values in zip(("R", "q", "s"), found, strict=False):
        np.testing.assert_allclose(values, vectors[f"out_{name}_YYt"], rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(norm(kernel, 1), vectors["out_trace_rr"], rtol=1e-7)
    # A kernel with a full matrix, seen along its eigenvectors; the measure is the same in all directions.
    eigenvalues, directions = np.linalg.eigh(vectors["in_Sigma2"])
    rotated = NuclearDominant(RBF(np.sqrt(eigenvalues)), vectors["in_eta"])
    values = chains(rotated, vectors["in_yA"] @ directions, vectors["in_yB"] @ directions)[0]
    np.testing.assert_allclose(values, vectors["out_r_Sigma2"], rtol=1e-7, atol=1e-10)


def test_the_kernel_is_its_integral():
    a, b = X1[1], X2[0]
    one, _ = quad(lambda u: k(0, a[0], u) * k(0, u, b[0]) * density(0, u), -np.inf, np.inf, epsabs=1e-12)
    np.testing.assert_allclose(
        eqx.filter_jit(KERNEL.evaluate_factors)(a, b)[0], one, rtol=1e-10
    )  # what quad promises, with room


@pytest.mark.slow
def test_the_chain_of_two_and_the_norm_are_their_integrals():
    kernel = NuclearDominant(RBF(LENGTHSCALES[0], VARIANCE), WIDTHS[0])
    a, b = 0.3, -0.5

    def chain(u, v):
        return k(0, a, u) * k(0, u, v) * k(0, v, b) * density(0, u) * density(0, v)

    def square(u, v):
        return k(0, u, v) ** 2 * density(0, u) * density(0, v)

    # Beyond 7, more than 5 widths, the integrands are below 1e-7; this is also what the quadrature is asked for.
    expected = [dblquad(f, -7, 7, -7, 7, epsabs=1e-7, epsrel=1e-7)[0] for f in (chain, square)]
    np.testing.assert_allclose(
        chains(kernel, np.array([[a]]), np.array([[b]]))[1][0, 0], VARIANCE**3 * expected[0], rtol=1e-6
    )
    np.testing.assert_allclose(norm(kernel, 1), VARIANCE**2 * expected[1], rtol=1e-6)


@pytest.mark.slow
def test_chains_are_products_of_kernel_matrices_on_a_grid(tolerance):
    for order, found in zip(ORDERS, chains(KERNEL, X1, X2), strict=True):
        expected = VARIANCE ** (order + 1) * np.prod([by_grid(order, j, X1[:, j], X2[:, j]) for j in (0, 1)], axis=0)
        np.testing.assert_allclose(found, expected, **tolerance())


def test_the_norm_multiplies_over_features(tolerance):
    # One width and one lengthscale stand for all features, which the points do not say here.
    shared = NuclearDominant(RBF(0.7, VARIANCE), 1.2)
    single = norm(shared, 1) / VARIANCE**2
    np.testing.assert_allclose(norm(shared, 3), VARIANCE**2 * single**3, **tolerance())


@pytest.mark.slow
def test_a_feature_with_infinite_lengthscale_gives_the_mass_of_the_measure(tolerance):
    kernel = NuclearDominant(RBF(jnp.array([0.7, jnp.inf])), WIDTHS)
    expected = np.sqrt(2 * np.pi) * WIDTHS[1] * by_grid(1, 0, X1[:, 0], X2[:, 0])
    np.testing.assert_allclose(chains(kernel, X1, X2)[0], expected, **tolerance())


def test_points_far_away_have_value_zero():
    # The exponent is of the order of -1e10; nothing cancels in it, and there is no overflow on the way.
    for values in chains(KERNEL, 1e5 + X1, 1e5 + X2):
        np.testing.assert_array_equal(values, 0.0)


def test_mistakes_are_named():
    with pytest.raises(TypeError, match="`base` must be an RBF, for which .* got Matern32"):
        NuclearDominant(Matern32(0.7), 1.0)
    with pytest.raises(ValueError, match="`width` must be positive, got 0"):
        NuclearDominant(RBF(0.7), 0.0)
    with pytest.raises(ValueError, match="`width` must be finite, got inf"):
        NuclearDominant(RBF(0.7), jnp.inf)
    with pytest.raises(ValueError, match="`width` has shape \\(2,\\), but the points have 3 features"):
        NuclearDominant(RBF(0.7), WIDTHS)(np.zeros((1, 3)), np.zeros((1, 3)))
    for order, needed in ((0, "at least 1"), (True, "an integer")):
        with pytest.raises(ValueError, match=f"`order` must be {needed}, got"):
            KERNEL.chain(order, X1, X2)
    with pytest.raises(TypeError, match=r"`width` is the prior .*kpp\.sample"):
        NuclearDominant(RBF(0.7), dist.LogNormal(0.0, 1.0)).chain(2, X1, X2)
    with pytest.raises(TypeError, match=r"kpp\.sample"):
        NuclearDominant(RBF(0.7), dist.LogNormal(0.0, 1.0)).squared_norm(2)


def test_the_trace_integrates_the_diagonal_of_the_base():
    kernel = NuclearDominant(RBF(0.7, 1.3), jnp.array([0.5, 2.0]))
    u = np.stack(np.meshgrid(np.linspace(-4, 4, 401), np.linspace(-16, 16, 401)), axis=-1)
    density = np.exp(-0.5 * ((u / [0.5, 2.0]) ** 2).sum(-1))
    # The measure beyond eight widths is below 1e-14.
    expected = 1.3 * np.trapezoid(np.trapezoid(density, dx=32 / 400, axis=0), dx=8 / 400)
    np.testing.assert_allclose(kernel.trace(2), expected, rtol=1e-10)
