"""Pointwise leave-one-out log densities against conditional densities formed by hand, and against SciPy's densities."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from kpp import linalg
from kpp.numpyro_models import pointwise

RNG = np.random.default_rng(0)
N = 6
gaussian, student_t = jax.jit(pointwise.gaussian), jax.jit(pointwise.student_t)


def covariances(*batch: int) -> np.ndarray:
    roots = RNG.normal(size=(*batch, N, N))
    return roots @ roots.swapaxes(-1, -2) + 0.5 * np.eye(N)


def conditional(y, mean, matrix, i):
    """Mean and variance of coordinate i given the others, by the blocks of the matrix, and the others' distance."""
    others = np.delete(np.arange(len(y)), i)
    residual, inverse = (y - mean)[others], np.linalg.inv(matrix[np.ix_(others, others)])
    row = matrix[i, others]
    distance = residual @ inverse @ residual
    return mean[i] + row @ inverse @ residual, matrix[i, i] - row @ inverse @ row, distance


def gaussian_by_hand(y, mean, matrix):
    found = [conditional(y, mean, matrix, i)[:2] for i in range(len(y))]
    return [scipy.stats.norm(m, np.sqrt(v)).logpdf(y[i]) for i, (m, v) in enumerate(found)]


def difference_of_densities(density, y, mean, matrix):
    """log p(y) - log p(y without i), each a density of SciPy."""
    kept = [np.delete(np.arange(len(y)), i) for i in range(len(y))]
    joint = density(mean, matrix).logpdf(y)
    return [joint - density(mean[k], matrix[np.ix_(k, k)]).logpdf(y[k]) for k in kept]


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e3])
def test_gaussian_densities_are_conditional_densities(scale):
    y, mean, matrix = scale * RNG.normal(size=N), scale * RNG.normal(size=N), scale**2 * covariances()
    found = gaussian(y, mean, matrix)
    np.testing.assert_allclose(found, gaussian_by_hand(y, mean, matrix), rtol=1e-9)
    by_densities = difference_of_densities(scipy.stats.multivariate_normal, y, mean, matrix)
    np.testing.assert_allclose(found, by_densities, rtol=1e-9, atol=1e-9)


@pytest.mark.slow_variants("0.7")
@pytest.mark.parametrize("degrees", [0.7, 4.0, 300.0])
def test_student_t_densities_are_differences_of_joint_densities(degrees):
    y, mean, matrix = RNG.normal(size=N), RNG.normal(size=N), covariances()

    def density(location, shape):
        return scipy.stats.multivariate_t(location, shape, df=degrees)

    found = student_t(y, degrees, mean, matrix)
    np.testing.assert_allclose(found, difference_of_densities(density, y, mean, matrix), rtol=1e-9, atol=1e-10)


def test_a_student_t_with_many_degrees_of_freedom_is_gaussian():
    """The log densities differ by terms of order n^2 / nu, 3.6e-6 here; the gamma functions' rounding is 1e-8."""
    y, matrix = RNG.normal(size=N), covariances()
    mean = np.zeros(N)
    np.testing.assert_allclose(student_t(y, 1e7, mean, matrix), gaussian(y, mean, matrix), atol=1e-5)


@pytest.mark.slow
def test_batches_are_loops():
    y, mean, matrices = RNG.normal(size=N), RNG.normal(size=(4, 1, N)), covariances(3)
    degrees = np.array([1.0, 2.0, 3.0])
    normal, heavy = gaussian(y, mean, matrices), student_t(y, degrees, mean, matrices)
    assert normal.shape == heavy.shape == (4, 3, N)
    for i in range(4):
        for j in range(3):
            np.testing.assert_allclose(normal[i, j], gaussian(y, mean[i, 0], matrices[j]), rtol=1e-12)
            expected = student_t(y, float(degrees[j]), mean[i, 0], matrices[j])
            np.testing.assert_allclose(heavy[i, j], expected, rtol=1e-12)


@pytest.mark.slow
def test_one_matrix_serves_many_means_and_programs_can_be_compiled():
    y, means, matrix = RNG.normal(size=N), RNG.normal(size=(5, N)), covariances()
    found = pointwise.gaussian(y, means, matrix)
    assert found.shape == (5, N)
    np.testing.assert_allclose(gaussian(y, means, matrix), found, rtol=1e-12)


@pytest.mark.slow
def test_bad_arguments_are_named():
    y, matrix = np.zeros(N), covariances()
    with pytest.raises(ValueError, match=r"`covariance` must have shape \(\*batch, n, n\)"):
        pointwise.gaussian(y, 0.0, matrix[:3])
    with pytest.raises(ValueError, match="`y` must be finite"):
        pointwise.gaussian(y + np.nan, 0.0, matrix)
    with pytest.raises(ValueError, match="`scale_matrix` must be symmetric"):
        pointwise.student_t(y, 3.0, 0.0, np.triu(matrix))
    with pytest.raises(ValueError, match="`degrees_of_freedom`"):
        pointwise.student_t(y, 0.0, 0.0, matrix)
    with pytest.raises(linalg.FactorizationError, match="`covariance` of member 1"):
        pointwise.gaussian(y, 0.0, jnp.stack([jnp.asarray(matrix), -jnp.eye(N)]))
