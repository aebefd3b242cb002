"""The pivoted Cholesky factorization against LAPACK's."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from scipy.linalg.lapack import dpstrf

from kpp.linalg import pivoted_cholesky

ROOT = np.random.default_rng(0).normal(size=(9, 9))
MATRIX = ROOT @ ROOT.T


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
