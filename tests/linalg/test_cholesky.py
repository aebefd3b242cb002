"""Factorizations agree with NumPy's, add jitter only where they must, and never return NaN unasked."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp import linalg
from kpp.linalg.cholesky import whiten


@pytest.fixture
def matrix():
    root = np.random.default_rng(0).normal(size=(6, 6))
    return root @ root.T + np.eye(6)


def test_solvers_agree_with_numpy(matrix):
    factor = linalg.cholesky(matrix)
    b = np.arange(12.0).reshape(6, 2)
    # Rounding of a well-conditioned 6 x 6 system.
    np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), rtol=1e-13)
    np.testing.assert_allclose(linalg.cho_solve(factor, b), np.linalg.solve(matrix, b), rtol=1e-11)
    np.testing.assert_allclose(linalg.cho_solve(factor, b[:, 0]), np.linalg.solve(matrix, b[:, 0]), rtol=1e-11)
    np.testing.assert_allclose(linalg.solve_lower(factor, b), np.linalg.solve(np.asarray(factor), b), rtol=1e-11)
    np.testing.assert_allclose(linalg.cho_inverse(factor) @ matrix, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(2 * linalg.half_log_determinant(factor), np.linalg.slogdet(matrix)[1], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 129, 301])
def test_inverse_by_blocks_is_the_inverse(n):
    root = np.random.default_rng(1).normal(size=(n, n))
    matrix = root @ root.T / n + np.eye(n)
    inverse = jax.jit(lambda matrix: linalg.cho_inverse(linalg.cholesky(matrix)))(matrix)
    # Condition numbers below 10.
    np.testing.assert_allclose(inverse, np.linalg.inv(matrix), atol=1e-13)


def test_a_good_matrix_gets_no_jitter():
    np.testing.assert_array_equal(linalg.cholesky(np.eye(4)), np.eye(4))


def test_a_singular_matrix_gets_at_most_the_stated_jitter():
    ones = np.full((5, 5), 2.0)
    factor = np.asarray(linalg.cholesky(ones))
    assert 0 < np.abs(factor @ factor.T - ones).max() <= 2.0 * 1e-10 * (1 + 1e-5)


def test_add_diagonal_takes_a_scalar_or_a_vector(matrix):
    np.testing.assert_array_equal(linalg.add_diagonal(matrix, 2.0), matrix + 2 * np.eye(6))
    np.testing.assert_array_equal(linalg.add_diagonal(matrix, jnp.arange(6.0)), matrix + np.diag(np.arange(6.0)))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.diag([1.0, 1.0, -1.0]), r"the Gram matrix.*not positive definite.*eigenvalues from -1.*condition number 1"),
        (np.full((3, 3), np.nan), r"the Gram matrix.*9 entries that are NaN"),
    ],
)
def test_failure_is_an_error_that_names_the_matrix(bad, message):
    with pytest.raises(linalg.FactorizationError, match=message):
        linalg.cholesky(bad, what="the Gram matrix")


def test_traced_failure_is_nan_and_raises_once_concrete():
    bad = -np.eye(3)
    factor = jax.jit(linalg.cholesky)(bad)
    assert np.isnan(factor).any()
    with pytest.raises(linalg.FactorizationError, match="not positive definite"):
        linalg.check_factor(factor, bad)


@pytest.mark.slow
def test_gradients_pass_through(matrix):
    def log_determinant(a):
        return 2 * linalg.half_log_determinant(linalg.cholesky(a))

    gradient = jax.grad(log_determinant)(jnp.asarray(matrix))
    np.testing.assert_allclose((gradient + gradient.T) / 2, np.linalg.inv(matrix), rtol=1e-10)


def test_float32_uses_its_own_jitter():
    with jax.enable_x64(False):
        factor = linalg.cholesky(np.ones((4, 4), np.float32))
        assert factor.dtype == jnp.float32
        assert np.isfinite(factor).all()


@pytest.mark.slow_variants("150")
@pytest.mark.parametrize("n", [3, 150])
def test_whitening_is_a_triangular_solve_with_its_derivatives(n):
    rng = np.random.default_rng(5)
    root, rows = rng.normal(size=(n, n)), rng.normal(size=(4, n))
    matrix = jnp.asarray(root @ root.T / n + np.eye(n))
    inverse, white, whitener = jax.jit(lambda m: (*whiten(m, rows), linalg.whitener(m)))(matrix)
    factor = np.linalg.cholesky(matrix)
    np.testing.assert_allclose(inverse, np.linalg.inv(factor), atol=1e-12)
    np.testing.assert_allclose(whitener, np.linalg.inv(factor), atol=1e-12)
    np.testing.assert_allclose(white, np.linalg.solve(factor, rows.T).T, atol=1e-12)

    def by_products(matrix, rows):
        inverse, white = whiten((matrix + matrix.T) / 2, rows)
        return jnp.sum(jnp.sin(white)) + jnp.sum(jnp.cos(inverse))

    def by_solves(matrix, rows):
        factor = jnp.linalg.cholesky((matrix + matrix.T) / 2)
        solve = functools.partial(jax.scipy.linalg.solve_triangular, factor, lower=True)
        return jnp.sum(jnp.sin(solve(rows.T))) + jnp.sum(jnp.cos(solve(jnp.eye(n))))

    direction = (jnp.asarray(root), jnp.asarray(rows))

    @functools.partial(jax.jit, static_argnums=0)
    def derivatives(function, *at):
        return jax.grad(function, argnums=(0, 1))(*at), jax.jvp(function, at, direction)[1]

    ours, theirs = (derivatives(function, matrix, jnp.asarray(rows)) for function in (by_products, by_solves))
    for first, second in zip(ours[0], theirs[0], strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-9)
