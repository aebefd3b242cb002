"""Matrices are symmetric and positive semi-definite, and agree with single points."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.kernels import RBF, AbstractKernel, Constant, Matern12, Matern52, Periodic


@pytest.mark.slow_variants("sum_of_selections", "matern12")
def test_matrices_hold_the_kernel_of_single_points(kernel, x, compiled, tolerance):
    single = [[compiled.evaluate(kernel, a, b) for b in x[:3]] for a in x[:3]]
    np.testing.assert_allclose(compiled.matrices(kernel, x)[0][:3, :3], single, **tolerance())


def test_gram_and_diagonal_are_those_of_a_call(kernel, x, compiled, tolerance):
    some, matrix, diagonal = compiled.matrices(kernel, x)
    np.testing.assert_allclose(matrix[:4], some, **tolerance())
    np.testing.assert_allclose(np.diagonal(matrix), diagonal, **tolerance())


def test_symmetric_and_positive_semi_definite_with_duplicates(kernel, x, compiled):
    matrix = compiled.matrices(kernel, x)[1]
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-14)
    # Rounding in six by six entries of a size up to the largest eigenvalue.
    eigenvalues = np.linalg.eigvalsh(matrix)
    assert eigenvalues[0] >= -1e-14 * eigenvalues[-1]


@pytest.mark.slow_variants("40-RBF(lengthscale=0.3, variance=1.0)")
@pytest.mark.parametrize("kernel", [RBF(0.3), Matern12(0.3), Matern52(0.3), Periodic(0.3)], ids=repr)
@pytest.mark.parametrize("d", [3, 40])
def test_the_diagonal_is_exact(kernel, d, compiled):
    x = np.random.default_rng(0).normal(size=(6, d)) + 10
    assert np.all(np.diagonal(compiled.gram(kernel, x)) == 1.0)


class OfPairs(AbstractKernel):
    """A kernel of differences of utilities; a point is a pair (2, d)."""

    def evaluate(self, x1, x2):
        return jnp.dot(x1[0] - x1[1], x2[0] - x2[1])


class OfBags(AbstractKernel):
    """A kernel of means of bags; a point is an array (L, d) and how many of its rows count."""

    width: jax.Array

    def evaluate(self, x1, x2):
        return jnp.exp(-jnp.sum(jnp.square(self._mean(x1) - self._mean(x2))) / self.width)

    def _mean(self, bag):
        points, length = bag
        inside = jnp.arange(points.shape[0]) < length
        return jnp.sum(jnp.where(inside[:, None], points, 0.0), axis=0) / length


@pytest.mark.slow
def test_points_may_be_pairs(x):
    pairs = np.stack([x[:3], x[3:]], axis=1)
    difference = x[:3] - x[3:]
    np.testing.assert_allclose(OfPairs().gram(pairs), difference @ difference.T, rtol=1e-14)
    expected = 2 * difference @ difference[:2].T + 1
    np.testing.assert_allclose((2.0 * OfPairs() + 1.0)(pairs, pairs[:2]), expected, rtol=1e-14)


@pytest.mark.slow
def test_points_may_be_pytrees_of_different_padding(x):
    kernel = OfBags(jnp.asarray(2.0))
    bags = (x.reshape(2, 3, 3), np.array([3, 2]))
    padded = (np.pad(bags[0], ((0, 0), (0, 2), (0, 0)), constant_values=7.0), bags[1])
    compute = eqx.filter_jit(lambda kernel: (kernel(bags, padded), kernel.gram(bags), kernel.diagonal(bags)))
    of_both, of_one, diagonal = compute(kernel)
    np.testing.assert_allclose(of_both, of_one, rtol=1e-14)
    np.testing.assert_array_equal(diagonal, 1.0)
    np.testing.assert_array_equal(Constant(2.0)(bags, padded), np.full((2, 2), 2.0))
