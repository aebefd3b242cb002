"""Conditional mean processes with inducing points, against dense algebra and inference that knows no optimum."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.optimize

import kpp
from kpp.data.bags import Bags
from kpp.kernels import RBF
from kpp_models import CMP
from oracles.inducing_bounds import elbo, optimal_q

SIZES = np.array([1, 4, 2, 3])


@pytest.fixture(scope="module")
def vectors(root):
    return dict(np.load(root / "tests/data/cmp.npz"))


@pytest.fixture(scope="module")
def bags(vectors):
    return Bags.create(vectors["in_bag_points"], np.repeat(np.arange(4), SIZES), vectors["in_Yb"])


def model_of(vectors, **options):
    bag_kernel, options = RBF(float(vectors["in_ly"])), {"kernel": RBF(vectors["in_lx"]), **options}
    return CMP(bag_kernel=bag_kernel, noise_variance=vectors["in_s2"], regularization=vectors["in_lam"], **options)


def kernel_matrix(lengthscale, a, b):
    return np.exp(-0.5 * (((a[:, None, :] - b[None, :, :]) / lengthscale) ** 2).sum(axis=-1))


@eqx.filter_jit
def at(model, data, x):
    posterior = model.posterior_draw({}, data)
    return {
        **model.predictive({}, data, x, covariance=True),
        "posterior mean": posterior.mean(x),
        "posterior covariance": posterior.covariance(x, x),
    }


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["exact", "shrinkage"])
def test_posterior_of_unequal_bags_is_the_dense_one(vectors, bags, estimator):
    """Unequal bags, high-resolution noise and a mean that is not zero."""
    options = {"estimator": estimator, "high_resolution_variance": 0.3, "mean": 0.7}
    model, data, _ = model_of(vectors, inducing_points=vectors["in_w"], **options).prepare(
        bags, vectors["in_z"], covariates=vectors["in_Yt"]
    )
    x = vectors["in_Xq"]
    found = at(model, data, jnp.asarray(x))

    w, lam, points = vectors["in_w"], float(vectors["in_lam"]), vectors["in_bag_points"]
    k = functools.partial(kernel_matrix, vectors["in_lx"])
    k_bags = functools.partial(kernel_matrix, float(vectors["in_ly"]))
    average = (np.repeat(np.arange(4), SIZES)[None, :] == np.arange(4)[:, None]) / SIZES[:, None]
    ridge = 10 * lam / SIZES if estimator == "exact" else np.full(4, 4 * lam)
    regularized = k_bags(vectors["in_Yb"], vectors["in_Yb"]) + np.diag(ridge)
    weights = np.linalg.solve(regularized, k_bags(vectors["in_Yb"], vectors["in_Yt"]))
    noise = float(vectors["in_s2"]) * np.eye(5) + 0.3 * weights.T @ np.diag(1 / SIZES) @ weights
    inverse = np.linalg.inv(k(w, w))
    h = inverse @ k(w, points) @ average.T @ weights
    sigma = np.linalg.inv(inverse + h @ np.linalg.inv(noise) @ h.T)
    eta = sigma @ h @ np.linalg.solve(noise, vectors["in_z"] - 0.7 * weights.sum(axis=0))
    mean = 0.7 + k(x, w) @ inverse @ eta
    covariance = k(x, x) - k(x, w) @ inverse @ (k(w, w) - sigma) @ inverse @ k(w, x)

    exactly = {"rtol": 1e-7, "atol": 1e-9}  # the inducing points carry a nugget of 1e-10
    np.testing.assert_allclose(found["mean"], mean, **exactly)
    np.testing.assert_allclose(found["latent_variance"], np.diag(covariance), **exactly)
    np.testing.assert_allclose(found["latent_covariance"], covariance, **exactly)
    np.testing.assert_allclose(found["posterior mean"], mean, **exactly)
    np.testing.assert_allclose(found["posterior covariance"], covariance, **exactly)


def matrices(vectors):
    """The reference problem: y, nu, A, K, B, G, T."""
    k = RBF(vectors["in_lx"])
    w, x = jnp.asarray(vectors["in_w"]), jnp.asarray(vectors["in_X"])
    noise = vectors["in_s2"] * np.eye(5)
    return vectors["in_z"], np.zeros(5), vectors["out_A"], k.gram(w), k(w, x), k.gram(x), noise


@pytest.mark.slow
def test_optimal_q_is_what_a_search_of_the_bound_finds(vectors):
    *problem, noise = matrices(vectors)
    lower = np.tril_indices(3)

    @jax.jit
    @jax.value_and_grad
    def objective(flat):
        root = jnp.zeros((3, 3)).at[lower].set(flat[3:])
        return -elbo(*problem, noise, flat[:3], root @ root.T)

    start = np.concatenate([np.zeros(3), np.eye(3)[lower]])
    result = scipy.optimize.minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-8})
    root = np.zeros((3, 3))
    root[lower] = result.x[3:]
    eta, sigma = optimal_q(*problem[:-1], noise)
    # The bound is flat at its top: a gradient of 1e-8 leaves errors of 1e-8 times the largest variance, 1.
    np.testing.assert_allclose(result.x[:3], eta, atol=1e-6)
    np.testing.assert_allclose(root @ root.T, sigma, atol=1e-6)


@pytest.mark.nightly
def test_optimal_q_is_where_stochastic_inference_ends(vectors):
    """The same noise by a likelihood of one's own, which has no closed form here: q(u) is fitted step by step."""
    noise = float(vectors["in_s2"])
    bags = Bags.of_single_points(vectors["in_X"], vectors["in_Y"])
    model = model_of(
        vectors, inducing_points=vectors["in_w"], likelihood=lambda g, exposure: dist.Normal(g, np.sqrt(noise))
    )
    inference = kpp.SVI(
        guide="multivariate_normal",
        num_steps=6000,
        learning_rate=0.03,
        num_particles=8,
        num_samples=10,
        progress=False,
    )
    fit = model.fit(
        jax.random.key(0), bags, vectors["in_z"], covariates=vectors["in_Yt"], inference=inference, num_prior_samples=0
    )
    factor = np.linalg.cholesky(np.asarray(RBF(vectors["in_lx"]).gram(jnp.asarray(vectors["in_w"]))))
    mean, root = factor @ fit.state["auto_loc"], factor @ fit.state["auto_scale_tril"]
    scale = np.sqrt(np.diag(vectors["out_Sig"]))
    # The step falls to 3e-4, and the gradient is noisy: a few hundredths of a standard deviation.
    np.testing.assert_allclose(mean / scale, vectors["out_eta"] / scale, atol=0.05)
    both = np.outer(scale, scale)
    np.testing.assert_allclose(root @ root.T / both, vectors["out_Sig"] / both, atol=0.05)


def learned(vectors, bags, inference):
    model = model_of(vectors, kernel=RBF(dist.LogNormal(0.0, 0.5)), num_inducing=3, learn_inducing=True)
    options = {"covariates": vectors["in_Yt"], "inference": inference, "num_prior_samples": 0}
    return model.fit(jax.random.key(0), bags, vectors["in_z"], **options)


@pytest.mark.nightly
def test_inducing_points_are_learned(vectors, bags):
    fit = learned(vectors, bags, kpp.MAP(num_restarts=0, progress=False))
    points = fit.idata.latent["inducing_points"]
    assert points.shape == (1, 1, 3, 2)
    assert points.dims[2:] == ("inducing_point", "feature")
    assert np.abs(np.asarray(points) - np.asarray(fit.model.inducing_points.mean)).max() > 1e-3
    assert np.isfinite(fit.predict(vectors["in_Xq"])["mean"].values).all()


@pytest.mark.nightly
def test_restarts_leave_a_bad_start():
    """From a lengthscale some fifty times too long the search takes the field for noise; restarts find it.

    They begin within two standard deviations of the prior, and about one in four of them finds the field.
    """
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-3.0, 3.0, size=200))[:, None]
    field = np.sin(4.0 * x[:, 0])
    bags = Bags.create(x, np.arange(200) // 5, x.reshape(40, 5).mean(axis=1)[:, None])
    model = CMP(
        kernel=RBF(dist.LogNormal(3.0, 3.0), 1.0),
        bag_kernel=RBF(0.1),
        noise_variance=dist.LogNormal(-2.0, 2.0),
        regularization=1e-4,
        num_inducing=30,
    )
    z = bags.means(field) + 0.05 * rng.normal(size=40)
    errors, densities = [], []
    for restarts in (0, 8):
        inference = kpp.MAP(num_restarts=restarts, progress=False)
        fit = model.fit(jax.random.key(1), bags, z, inference=inference, num_prior_samples=0)
        errors.append(np.sqrt(np.mean((fit.predict(x)["mean"].values[0, 0] - field) ** 2)))
        densities.append(fit.attrs["log_density"])
    assert errors[0] > 0.6  # the standard deviation of the field is 0.7
    assert errors[1] < 0.15
    assert densities[1] > densities[0]
