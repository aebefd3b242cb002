"""Positive parts and roots of symmetric matrices agree with eigenvalues, closed forms and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from kpp.linalg.toolkit import positive_part, root_of_full_rank

VECTORS = scipy.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]


def with_eigenvalues(values):
    return (VECTORS * np.asarray(values)) @ VECTORS.T


def test_negative_eigenvalues_become_zero():
    found = positive_part(with_eigenvalues([2.0, 0.5, -0.5, -1.0]))
    np.testing.assert_allclose(found, with_eigenvalues([2.0, 0.5, 0.0, 0.0]), atol=1e-14)
    absolute = scipy.linalg.sqrtm(with_eigenvalues([2.0, 0.5, -0.5, -1.0]) @ with_eigenvalues([2.0, 0.5, -0.5, -1.0]))
    np.testing.assert_allclose(2 * found - with_eigenvalues([2.0, 0.5, -0.5, -1.0]), absolute, atol=1e-13)


@pytest.mark.slow_variants("values0")
@pytest.mark.parametrize(
    "values",
    [
        [2.0, 2.0, 2.0, 2.0],
        *(pytest.param(v, marks=pytest.mark.slow) for v in ([2.0, 0.5, -0.5, -1.0], [1.0, 1.0, -1.0, -1.0])),
        [-1.0, -1.0, 0.5, 2.0],
    ],
)
def test_the_derivative_is_that_of_differences_for_equal_eigenvalues_too(values, derivative):
    rng = np.random.default_rng(0)
    weights, direction = rng.normal(size=(4, 4)), rng.normal(size=(4, 4))
    start, direction = jnp.asarray(with_eigenvalues(values)), direction + direction.T

    @jax.jit
    def total(step):
        return jnp.sum(weights * positive_part(start + step * direction))

    expected = derivative(total, 0.0)
    backward, forward = jax.jit(lambda step: (jax.grad(total)(step), jax.jvp(total, (step,), (1.0,))[1]))(0.0)
    np.testing.assert_allclose(backward, expected, rtol=1e-7)  # fourth order
    np.testing.assert_allclose(forward, expected, rtol=1e-7)


def test_a_root_has_orthogonal_columns_and_the_rank_of_the_matrix():
    matrix = with_eigenvalues([2.0, 0.5, 1e-18, 0.0])
    root = np.asarray(root_of_full_rank(matrix))
    assert root.shape == (4, 2)
    np.testing.assert_allclose(root @ root.T, matrix, atol=1e-15)
    np.testing.assert_allclose(root.T @ root, np.diag([2.0, 0.5]), atol=1e-14)
