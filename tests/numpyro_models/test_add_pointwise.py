"""Log likelihoods that ArviZ takes: against conditional densities formed by hand, and against refits without a row."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
import tinygp
import xarray as xr

import kpp
from kpp.storage import arviz_data

RNG = np.random.default_rng(0)
N = 8
X = np.sort(RNG.normal(size=N))
Y = np.sin(2.0 * X) + 0.2 * RNG.normal(size=N)
LENGTHSCALES, NOISES = RNG.uniform(0.9, 1.2, size=(2, 30)), RNG.uniform(0.2, 0.25, size=(2, 30))


def kernel(lengthscale, xp=jnp):
    return xp.exp(-0.5 * (X[:, None] - X[None]) ** 2 / lengthscale**2)


def covariance(lengthscale, noise):
    return kernel(lengthscale) + noise**2 * jnp.eye(N)


LAWS = {
    "MultivariateNormal": lambda length, noise: dist.MultivariateNormal(jnp.full(N, 0.3), covariance(length, noise)),
    "GaussianProcessMarginal": lambda length, noise: kpp.gp.GaussianProcessMarginal(0.3, kernel(length), noise**2),
    "tinygp": lambda length, noise: tinygp.GaussianProcess(
        tinygp.kernels.ExpSquared(length), X, diag=noise**2, mean=0.3
    ).numpyro_dist(),
    "LowRankMultivariateNormal": lambda length, noise: dist.LowRankMultivariateNormal(
        jnp.full(N, 0.3), jnp.linalg.cholesky(kernel(length) + 1e-9 * jnp.eye(N)), jnp.full(N, noise**2)
    ),
    "MultivariateStudentT": lambda length, noise: dist.MultivariateStudentT(
        4.0, jnp.full(N, 0.3), jnp.linalg.cholesky(covariance(length, noise))
    ),
}


def model_of(law):
    def model(y=None):
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        numpyro.sample("y", LAWS[law](lengthscale, noise), obs=y)

    return model


def posterior_groups():
    variables = {"lengthscale": (("chain", "draw"), LENGTHSCALES), "noise": (("chain", "draw"), NOISES)}
    posterior = xr.Dataset(variables, coords={"chain": np.arange(2), "draw": np.arange(30)})
    observed = xr.Dataset({"y": ("time", Y)}, coords={"time": X})
    joint = xr.Dataset({"y": (("chain", "draw"), np.zeros((2, 30))), "other": (("chain", "draw"), np.zeros((2, 30)))})
    return {"posterior": posterior, "observed_data": observed, "log_likelihood": joint}


@pytest.fixture(scope="module")
def idata():
    return arviz_data.from_groups(posterior_groups(), {"made_by": "a test"})


def expected_density(law, chain, draw):
    """log p(y) - log p(y without i) by SciPy."""
    matrix = kernel(LENGTHSCALES[chain, draw], np) + NOISES[chain, draw] ** 2 * np.eye(N)

    def density(kept):
        mean, block = np.full(len(kept), 0.3), matrix[np.ix_(kept, kept)]
        if law == "MultivariateStudentT":
            return scipy.stats.multivariate_t(mean, block, df=4.0).logpdf(Y[kept])
        return scipy.stats.multivariate_normal(mean, block).logpdf(Y[kept])

    rows = np.arange(N)
    return [density(rows) - density(np.delete(rows, i)) for i in rows]


@pytest.mark.parametrize("law", LAWS)
def test_values_are_conditional_log_densities(idata, law):
    """The low-rank factor of the test has a jitter of 1e-9, which SciPy's matrix lacks."""
    found = arviz_data.group(kpp.add_pointwise(idata, model_of(law), data={"y": Y}), "log_likelihood")["y"]
    assert found.dims == ("chain", "draw", "time")
    for chain, draw in ((0, 0), (1, 29)):
        expected = expected_density(law, chain, draw)
        np.testing.assert_allclose(found[chain, draw], expected, rtol=1e-5 if "LowRank" in law else 1e-8)


def test_arviz_counts_the_rows(idata):
    """elpd against the harmonic means of the densities: with draws so close to each other, smoothing changes little."""
    result = kpp.add_pointwise(idata, model_of("GaussianProcessMarginal"), data={"y": Y})
    loo = arviz_data.loo(result, var_name="y")
    assert loo.n_data_points == N
    densities = arviz_data.group(result, "log_likelihood")["y"].values.reshape(-1, N)
    rough = -np.log(np.mean(np.exp(-densities), axis=0)).sum()
    assert abs(arviz_data.loo_numbers(loo)["elpd"] - rough) < 0.1


def test_other_groups_and_variables_are_kept(idata):
    before = arviz_data.group(idata, "log_likelihood")["y"].shape
    result = kpp.add_pointwise(idata, model_of("MultivariateNormal"), data={"y": Y})
    assert set(arviz_data.group_names(result)) == {"posterior", "observed_data", "log_likelihood"}
    assert set(arviz_data.group(result, "log_likelihood")) == {"y", "other"}
    assert result.attrs["made_by"] == "a test"
    assert arviz_data.group(idata, "log_likelihood")["y"].shape == before == (2, 30)


def test_samples_may_come_from_elsewhere(idata):
    expected = kpp.add_pointwise(idata, model_of("MultivariateNormal"), data={"y": Y})
    bare = arviz_data.from_groups({"posterior": posterior_groups()["posterior"][["noise"]]})
    samples = {"lengthscale": LENGTHSCALES, "noise": NOISES}
    found = kpp.add_pointwise(bare, model_of("MultivariateNormal"), samples, data={"y": Y})
    values = arviz_data.group(found, "log_likelihood")["y"]
    assert values.dims == ("chain", "draw", "y_dim_0")
    np.testing.assert_array_equal(values, arviz_data.group(expected, "log_likelihood")["y"])
    with pytest.raises(ValueError, match=r"depends on \['lengthscale'\], which `posterior` lacks"):
        kpp.add_pointwise(bare, model_of("MultivariateNormal"), data={"y": Y})
    with pytest.raises(ValueError, match="`samples` must be the"):
        kpp.add_pointwise(
            bare, model_of("MultivariateNormal"), {name: draws[:, :3] for name, draws in samples.items()}, data={"y": Y}
        )


def test_a_plate_of_vectors_has_densities_for_each(idata):
    both = np.stack([Y, Y[::-1] + 1.0])

    def model(y=None):
        lengthscale, noise = (numpyro.sample(name, dist.LogNormal(0.0, 1.0)) for name in ("lengthscale", "noise"))
        with numpyro.plate("series", 2):
            numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(N), covariance(lengthscale, noise)), obs=y)

    found = arviz_data.group(kpp.add_pointwise(idata, model, data={"y": both}), "log_likelihood")["y"].values
    pairs = zip(LENGTHSCALES.ravel(), NOISES.ravel(), strict=True)
    matrices = np.array([kernel(length, np) + noise**2 * np.eye(N) for length, noise in pairs])
    expected = jax.jit(kpp.numpyro_models.pointwise.gaussian)(both, np.zeros(N), matrices.reshape(2, 30, 1, N, N))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_without_such_a_site_the_observed_ones_are_listed(idata):
    def model(y=None):
        numpyro.sample("y", dist.Normal(0.0, numpyro.sample("noise", dist.HalfNormal(1.0))), obs=y)

    def two(y=None):
        for name in ("y", "z"):
            numpyro.sample(name, dist.MultivariateNormal(jnp.zeros(N), jnp.eye(N)), obs=y)

    with pytest.raises(ValueError, match=r"`site` must name an observed site.*\{'y': 'Normal'\}"):
        kpp.add_pointwise(idata, model, data={"y": Y})
    with pytest.raises(ValueError, match="`site` must name one of several"):
        kpp.add_pointwise(idata, two, data={"y": Y})
    found = arviz_data.group(kpp.add_pointwise(idata, two, data={"y": Y}, site="z"), "log_likelihood")["z"]
    np.testing.assert_allclose(found[1, 3], scipy.stats.norm.logpdf(Y), rtol=1e-12)


@pytest.mark.slow
def test_importance_sampling_agrees_with_refits():
    """A Gaussian process with one unknown, on a grid: refits without each row are exact.

    4000 draws leave a Monte Carlo error of the elpd below 0.02; the tolerance is 0.05.
    """
    grid = np.linspace(0.05, 3.0, 2000)

    def joint(kept):
        matrices = np.array([kernel(length, np)[np.ix_(kept, kept)] + 0.04 * np.eye(len(kept)) for length in grid])
        factors = np.linalg.cholesky(matrices)
        white = np.linalg.solve(factors, np.broadcast_to((Y[kept])[:, None], (len(grid), len(kept), 1)))[..., 0]
        return (
            -0.5 * (white**2).sum(-1)
            - np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(-1)
            - len(kept) / 2 * np.log(2 * np.pi)
        )

    prior = scipy.stats.lognorm(1.0).logpdf(grid)
    rows = np.arange(N)
    full = joint(rows) + prior
    exact = 0.0
    for i in rows:
        without = joint(np.delete(rows, i)) + prior
        exact += np.logaddexp.reduce(full) - np.logaddexp.reduce(without)
    weights = np.exp(full - full.max())
    draws = np.random.default_rng(1).choice(grid, size=(4, 1000), p=weights / weights.sum())

    def model(y=None):
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
        numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(N), covariance(lengthscale, 0.2)), obs=y)

    posterior = xr.Dataset({"lengthscale": (("chain", "draw"), draws)}, coords={"chain": range(4), "draw": range(1000)})
    result = kpp.add_pointwise(arviz_data.from_groups({"posterior": posterior}), model, data={"y": Y})
    assert abs(arviz_data.loo_numbers(arviz_data.loo(result))["elpd"] - exact) < 0.05
