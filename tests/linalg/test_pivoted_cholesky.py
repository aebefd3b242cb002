"""The pivoted Cholesky factorization against LAPACK's, and whiteners of singular matrices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg.lapack import dpstrf

from kpp.linalg import FactorizationError
from kpp.linalg.pivoted import pivoted_cholesky, pivoted_whitener
from oracles.kernels import rbf

ROOT = np.random.default_rng(0).normal(size=(9, 9))
MATRIX = ROOT @ ROOT.T


@pytest.mark.slow
def test_columns_are_those_of_lapack():
    factor, pivots, _, _ = dpstrf(MATRIX, lower=1)
    expected = np.zeros((9, 9))
    expected[pivots - 1] = np.tril(factor)
    for rank in (1, 4, 9):
        np.testing.assert_allclose(
            pivoted_cholesky(jnp.asarray(MATRIX), rank), expected[:, :rank], rtol=1e-9, atol=1e-10
        )


def test_what_is_not_needed_is_zero():
    root = np.asarray(pivoted_cholesky(jnp.asarray(ROOT[:, :3] @ ROOT[:, :3].T), 6))
    np.testing.assert_allclose(root @ root.T, ROOT[:, :3] @ ROOT[:, :3].T, rtol=1e-9, atol=1e-12)
    assert not root[:, 3:].any()
    assert not np.asarray(pivoted_cholesky(jnp.zeros((3, 3)), 2)).any()


CROWDED = np.array([0.0, 0.5, 0.5, 0.501, 0.502, 0.5 + 1e-9, 1.0, 2.0, 2.0])[:, None]
SINGULAR = {
    "regular": (MATRIX, 9),
    "crowded": (rbf(CROWDED, CROWDED), None),
    "equal": (rbf(np.round(CROWDED), np.round(CROWDED)), 3),
    "no features": (np.ones((9, 9)), 1),
    "zero": (np.zeros((9, 9)), 0),
}


@pytest.mark.slow_variants("regular", "crowded")
@pytest.mark.parametrize("name", SINGULAR)
def test_a_whitener_of_a_singular_matrix_drops_what_depends_on_the_pivots(name):
    matrix, rank = SINGULAR[name]
    inverse = np.asarray(pivoted_whitener(matrix))
    kept = inverse.any(axis=1)
    assert kept.sum() == rank or (rank is None and 4 < kept.sum() < 9)
    assert (np.diff(kept.astype(int)) <= 0).all()
    # The entries of the inverse are large, at most the inverse root of 8 rounding errors, 2e7.
    np.testing.assert_allclose(inverse @ matrix @ inverse.T, np.diag(kept.astype(float)), atol=1e-10)
    np.testing.assert_allclose(matrix @ inverse.T @ inverse @ matrix, matrix, rtol=1e-12, atol=1e-13)
    if name == "regular":
        np.testing.assert_allclose(inverse, np.linalg.inv(np.linalg.cholesky(matrix)), rtol=1e-9, atol=1e-10)


@pytest.mark.slow
def test_derivatives_are_those_without_the_repeated_rows():
    rows = np.array([0, 1, 2, 1, 0, 2, 2, 1, 0])
    small = jnp.asarray(MATRIX[:3, :3])

    def repeated(matrix):
        return jnp.sum((pivoted_whitener(matrix[rows][:, rows]) @ ROOT[rows]) ** 2)

    def once(matrix):
        return jnp.sum(ROOT[:3] * jnp.linalg.solve(matrix, ROOT[:3]))

    found, expected = jax.grad(repeated)(small), jax.grad(once)(small)
    np.testing.assert_allclose(found + found.T, expected + expected.T, rtol=1e-9)


def test_a_matrix_with_negative_eigenvalues_has_no_whitener():
    with pytest.raises(FactorizationError, match=r"the kernel matrix .*eigenvalues from -1"):
        pivoted_whitener(np.diag([1.0] * 8 + [-1.0]))
