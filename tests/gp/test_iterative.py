"""The evidence by conjugate gradients is the dense one, and so are its derivatives, without a kernel matrix."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp import linalg
from kpp.gp import IterativeSettings
from kpp.gp.laws.gaussian_laws import gaussian_log_density
from kpp.gp.toolkit import IterativeSystem, iterative_log_density, kernel_product
from kpp.kernels import RBF, Matern52

RNG = np.random.default_rng(5)
N = 60
X = jnp.asarray(RNG.uniform(-2, 2, size=(N, 2)))
Y = jnp.asarray(np.sin(2 * X[:, 0]) + 0.3 * RNG.normal(size=N))
ROWS = jnp.asarray(RNG.uniform(0.0, 0.3, size=N))
# The columns of this matrix give the trace itself.
ALL = jnp.sqrt(N) * jnp.eye(N)
# The error of 24 nodes is below 1e-10 for eigenvalues up to 1e4.
EXACT = IterativeSettings(rank=12, tolerance=1e-10, num_nodes=24)
# The logarithms of two lengthscales, the variance, and the noise variance; and the mean.
THETA = jnp.array([-0.1, 0.3, 0.4, -2.5, 0.2])


def parts(theta, x=X):
    return Matern52(jnp.exp(theta[:2]), jnp.exp(theta[2])), jnp.exp(theta[3]) + ROWS[: len(x)]


def system(theta, settings=EXACT):
    kernel, noise = parts(theta)
    return IterativeSystem.create(kernel, X, noise, settings)


def dense(theta):
    kernel, noise = parts(theta)
    return gaussian_log_density(Y - theta[4], linalg.add_diagonal(kernel.gram(X), noise))


dense_with_slope = jax.jit(jax.value_and_grad(dense))


def iterative(theta, probes=None, settings=EXACT):
    return iterative_log_density(system(theta, settings), Y - theta[4], probes)


def hessian(value):
    return lambda theta: jax.lax.map(lambda way: jax.jvp(jax.grad(value), (theta,), (way,))[1], jnp.eye(5))


@pytest.mark.slow
def test_the_system_is_the_whitened_matrix_and_its_eigenvalues_have_the_bounds():
    kernel, noise = parts(THETA)
    matrix, identity = kernel.gram(X) + jnp.diag(noise), jnp.eye(N)

    @jax.jit
    def products():
        found = system(THETA)
        approximation = noise[:, None] ** 0.5 * (found.features @ found.features.T + identity) * noise[None] ** 0.5
        whitened = [found.whiten(one) @ found.unwhiten(identity) for one in (matrix, approximation)]
        both = found.whiten(identity), found.unwhiten(identity).T
        log_determinant = found.preconditioner_log_determinant()
        return both, found.multiply(identity), whitened, approximation, log_determinant, found.bound

    both, multiplied, (whitened, of_approximation), approximation, log_determinant, bound = products()
    np.testing.assert_allclose(*both, atol=1e-12)
    np.testing.assert_allclose(multiplied, whitened, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(of_approximation, identity, atol=1e-10)
    np.testing.assert_allclose(log_determinant, np.linalg.slogdet(approximation)[1], rtol=1e-12)
    eigenvalues = np.linalg.eigvalsh(multiplied)
    assert eigenvalues[0] > 1 - 1e-9
    assert eigenvalues[-1] < bound


@pytest.mark.nightly_variants("100")
@pytest.mark.slow
@pytest.mark.parametrize("rank", [1, 100])  # 100: all rows
def test_with_all_directions_it_is_the_dense_evidence_with_its_derivatives(rank):
    settings = dataclasses.replace(EXACT, rank=rank)
    value, gradient = jax.jit(jax.value_and_grad(lambda theta: iterative(theta, ALL, settings)))(THETA)
    expected, slope = dense_with_slope(THETA)
    # With all rows as landmarks, the nugget of the preconditioner leaves 1e-10 of the variance to the nodes.
    np.testing.assert_allclose(value, expected, rtol=1e-8)
    np.testing.assert_allclose(gradient, slope, rtol=1e-7, atol=1e-7)


@pytest.mark.nightly
def test_second_derivatives_are_the_dense_ones():
    found = jax.jit(hessian(lambda theta: iterative(theta, ALL)))(THETA)
    np.testing.assert_allclose(found, jax.jit(hessian(dense))(THETA), rtol=1e-6, atol=1e-6)


FEW = dataclasses.replace(EXACT, num_nodes=5, num_probes=2)
estimate = jax.jit(lambda theta: jax.value_and_grad(lambda theta: iterative(theta, settings=FEW))(theta))


@pytest.mark.slow
def test_gradient_of_the_estimate_is_its_difference():
    way = jnp.asarray(RNG.normal(size=5))
    difference = (estimate(THETA + 1e-5 * way)[0] - estimate(THETA - 1e-5 * way)[0]) / 2e-5
    np.testing.assert_allclose(jnp.sum(estimate(THETA)[1] * way), difference, rtol=1e-7)


@pytest.mark.slow
def test_the_settings_determine_the_random_vectors():
    probes = FEW.probes(N, X.dtype)
    assert set(np.unique(probes)) == {-1.0, 1.0}
    assert not np.array_equal(probes, dataclasses.replace(FEW, seed=1).probes(N, X.dtype))
    given = jax.jit(lambda probes: iterative(THETA, probes, FEW))
    np.testing.assert_allclose(given(probes), estimate(THETA)[0], rtol=1e-12)
    landmarks = np.asarray(FEW.landmarks(X))
    assert len(np.unique(landmarks, axis=0)) == 12
    assert (landmarks[:, None] == np.asarray(X)[None]).all(axis=2).any(axis=1).all()


@pytest.mark.nightly
def test_estimates_with_random_vectors_are_unbiased():
    """400 groups of 2 vectors; the means of value and gradient are within 4 standard errors of the dense ones."""
    probes = jnp.asarray(RNG.choice([-1.0, 1.0], size=(400, N, 2)))
    every = jax.jit(lambda groups: jax.lax.map(lambda one: jax.value_and_grad(iterative)(THETA, one), groups))
    values, gradients = every(probes)
    expected, slope = dense_with_slope(THETA)
    draws = np.column_stack([values, gradients])
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - np.append(expected, slope)), 4 * error + 1e-8)


@pytest.mark.slow
def test_an_evidence_that_does_not_converge_is_nan():
    settings = dataclasses.replace(FEW, max_steps=2)
    assert np.isnan(jax.jit(lambda theta: iterative(theta, settings=settings))(THETA))


@pytest.mark.parametrize(
    ("settings", "name"),
    [({"num_probes": 0}, "num_probes"), ({"rank": 0}, "rank"), ({"tolerance": 0.0}, "tolerance"),
     ({"max_steps": 0}, "max_steps"), ({"num_nodes": 0}, "num_nodes"), ({"seed": -1}, "seed")],
)  # fmt: skip
def test_settings_out_of_range_are_refused(settings, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        IterativeSettings(**settings)


MANY = jnp.asarray(RNG.uniform(-2, 2, size=(1100, 2)))  # three tiles, the last one filled up
COLUMNS = jnp.asarray(RNG.normal(size=(1100, 2)))


@pytest.mark.slow
def test_products_by_tiles_are_dense_products_with_their_derivatives():
    def by_tiles(scale, x, columns):
        return jnp.sum(jnp.sin(kernel_product(RBF(scale), x, columns)))

    def by_matrix(scale, x, columns):
        return jnp.sum(jnp.sin(RBF(scale).gram(x) @ columns))

    arguments = (jnp.array([0.7, 1.1]), MANY, COLUMNS)
    found, expected = (
        jax.jit(jax.value_and_grad(value, argnums=(0, 1, 2)))(*arguments) for value in (by_tiles, by_matrix)
    )
    jax.tree.map(lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-9), found, expected)


def largest(jaxpr):
    """The size of the largest array in a program, its inner programs included."""
    sizes = [int(np.prod(var.aval.shape)) for equation in jaxpr.eqns for var in equation.outvars]
    given = [value for equation in jaxpr.eqns for value in equation.params.values()]
    parts = [part for value in given for part in (value if isinstance(value, tuple | list) else [value])]
    programs = [getattr(part, "jaxpr", part) for part in parts]
    return max([*sizes, *(largest(part) for part in programs if hasattr(part, "eqns"))], default=0)


@pytest.mark.slow
def test_no_derivative_makes_a_matrix_of_all_rows():
    settings = IterativeSettings(rank=20, num_probes=2, num_nodes=4)
    targets = MANY[:, 0]

    def value(theta):
        kernel = Matern52(jnp.exp(theta[:2]), jnp.exp(theta[2]))
        return iterative_log_density(IterativeSystem.create(kernel, MANY, jnp.exp(theta[3]), settings), targets)

    def curvature(theta):
        return jax.jvp(jax.grad(value), (theta,), (jnp.ones(4),))[1]

    def by_matrix(theta):
        return jnp.sum(Matern52(jnp.exp(theta[:2])).gram(MANY))

    assert largest(jax.make_jaxpr(by_matrix)(THETA[:4]).jaxpr) >= 1100**2  # the measure sees a matrix
    for function in (value, jax.grad(value), curvature):
        assert largest(jax.make_jaxpr(function)(THETA[:4]).jaxpr) < 1100**2 / 4
