"""GPPosterior: covariances against dense matrices, over draws too, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kpp
from kpp.kernels import RBF

POINTS = jax.random.normal(jax.random.key(0), (6, 2))
A = jax.random.normal(jax.random.key(1), (3, 2))
B = jax.random.normal(jax.random.key(2), (4, 2))
NOISE = 0.1


def posterior_at(lengthscale, variance=1.7):
    kernel = RBF(lengthscale, variance)
    factor = jnp.linalg.cholesky(kernel.gram(POINTS) + NOISE * jnp.eye(6))
    root = jax.scipy.linalg.solve_triangular(factor, jnp.eye(6), lower=True).T
    return kpp.GPPosterior(kpp.RKHSFunction(kernel, POINTS, jnp.arange(6.0), 0.3), root)


def dense(kernel, x1, x2):
    """The posterior covariance by an ordinary solve."""
    k = [np.asarray(kernel(a, b)) for a, b in ((x1, x2), (x1, POINTS), (POINTS, x2), (POINTS, POINTS))]
    return k[0] - k[1] @ np.linalg.solve(k[3] + NOISE * np.eye(6), k[2])


def over_draws(lengthscales):
    """One posterior a lengthscale, draws of shape (2, 2)."""
    each = [posterior_at(lengthscale) for lengthscale in lengthscales]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves).reshape(2, 2, *leaves[0].shape), *each)
    mean = kpp.RKHSFunction(stacked.mean.kernel, POINTS, stacked.mean.coefficients, stacked.mean.intercept, (2, 2))
    return each, kpp.GPPosterior(mean, stacked.root)


@pytest.mark.slow
def test_one_posterior():
    posterior = posterior_at(0.9)
    expected = dense(posterior.mean.kernel, A, B)
    np.testing.assert_allclose(posterior.covariance(A, B), expected, atol=1e-12)
    np.testing.assert_allclose(posterior.variance(A), np.diag(dense(posterior.mean.kernel, A, A)), atol=1e-12)


@pytest.mark.slow
def test_draws_are_taken_one_by_one():
    each, posterior = over_draws([0.7, 0.9, 1.3, 2.0])
    assert posterior.batch_shape == (2, 2)
    covariance, variance = posterior.covariance(A, B), posterior.variance(A)
    assert covariance.shape == (2, 2, 3, 4)
    for i, single in enumerate(each):
        np.testing.assert_allclose(covariance[i // 2, i % 2], dense(single.mean.kernel, A, B), atol=1e-12)
        np.testing.assert_allclose(variance[i // 2, i % 2], single.variance(A), atol=1e-12)
    np.testing.assert_allclose(posterior.map_draws(lambda draw: draw.mean(A)), posterior.mean(A), atol=1e-12)


@pytest.mark.slow
def test_variance_is_never_negative():
    """At training points without noise it is 0, which rounding puts below."""
    kernel = RBF(1.0)
    factor = jnp.linalg.cholesky(kernel.gram(POINTS))
    root = jax.scipy.linalg.solve_triangular(factor, jnp.eye(6), lower=True).T
    variance = kpp.GPPosterior(kpp.RKHSFunction(kernel, POINTS, jnp.zeros(6)), root).variance(POINTS)
    assert (variance >= 0).all() and (variance < 1e-10).all()


@pytest.mark.parametrize(
    ("outputs", "root_shape", "message"),
    [
        ((), (5, 6), r"`root` must have shape \(\*batch_shape, n, r\) .* = \(6,\), got shape \(5, 6\)"),
        ((), (6,), r"`root` must have shape .* got shape \(6,\)"),
        ((2,), (6, 6), r"`output_covariance` must have shape \(\*batch_shape, P, P\) for P outputs of `mean`, \(2,\)"),
    ],
)
def test_refuses(outputs, root_shape, message):
    mean = kpp.RKHSFunction(RBF(1.0), POINTS, jnp.ones((6, *outputs)))
    with pytest.raises(ValueError, match=message):
        kpp.GPPosterior(mean, jnp.ones(root_shape))
