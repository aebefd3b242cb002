"""The prior of lengthscales against its hierarchy, a closed form, and quadrature of SciPy; and what it is for."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

import kpp
from kpp.kernels import RBF
from kpp.storage.serialization import from_spec, to_spec
from kpp_models import GPRegression
from kpp_structures import SAASLengthscales


def log_density(value, scale=0.1):
    """The log density as one program."""
    prior = SAASLengthscales(np.shape(value)[-1], scale)
    return np.asarray(jax.jit(lambda value: prior.log_prob(value))(jnp.asarray(value)))


def test_the_density_of_one_lengthscale_has_a_closed_form():
    lengthscales = np.geomspace(1e-4, 1e4, 41)
    z = -2 * np.log(lengthscales) - np.log(0.3)
    expected = np.log(4 / lengthscales / np.pi**2) + np.log(np.where(z == 0, 1.0, z / np.sinh(z)))
    found = log_density(lengthscales[:, None], 0.3)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.slow_variants("60")
@pytest.mark.parametrize("num_features", [2, 7, 60])
def test_the_density_is_the_integral_over_the_shared_scale(num_features):
    rng = np.random.default_rng(num_features)
    for value in np.abs(0.1 * rng.standard_cauchy((3, num_features))) ** -0.5:
        rho = value**-2.0
        highest = float(log_density(value))

        def integrand(log_tau, rho=rho, value=value, highest=highest):
            tau = np.exp(log_tau)
            density = stats.halfcauchy.logpdf(tau, scale=0.1) + stats.halfcauchy.logpdf(rho, scale=tau).sum() + log_tau
            return np.exp(density + np.log(2 * value**-3.0).sum() - highest)

        middle = np.median(np.log(rho))
        parts = [(-60.0, middle - 8.0), (middle - 8.0, middle + 8.0), (middle + 8.0, 60.0)]
        total = sum(integrate.quad(integrand, *part, epsabs=1e-11, epsrel=1e-11, limit=400)[0] for part in parts)
        assert abs(np.log(total)) < 1e-9


@pytest.mark.slow
def test_many_equal_and_very_different_lengthscales_keep_the_digits():
    """Against a sum over many more nodes, computed here."""
    for value in (np.full(300, 0.7), np.array([1e-6, 1.0, 1e6])):
        centers = np.r_[np.log(0.1), -2 * np.log(value)]
        nodes = np.linspace(centers.min() - 45, centers.max() + 45, 40_001)
        terms = sum(np.log(2 / np.pi) - np.logaddexp(nodes - center, center - nodes) for center in centers)
        expected = np.logaddexp.reduce(terms) + np.log(nodes[1] - nodes[0]) + np.log(2 / value).sum()
        np.testing.assert_allclose(log_density(value), expected, rtol=1e-11, atol=1e-9)


@pytest.mark.slow
def test_draws_are_those_of_the_hierarchy():
    draws = np.asarray(SAASLengthscales(3, 0.2).sample(jax.random.key(0), (20_000,)))
    rng = np.random.default_rng(0)
    tau = 0.2 * np.abs(rng.standard_cauchy((20_000, 1)))
    hierarchy = (tau * np.abs(rng.standard_cauchy((20_000, 3)))) ** -0.5
    for one, other in [(draws[:, 1], hierarchy[:, 1]), (draws[:, 0] / draws[:, 2], hierarchy[:, 0] / hierarchy[:, 2])]:
        assert stats.ks_2samp(one, other).pvalue > 1e-3
    # The share of draws in a box is the integral of the density over it.
    grid = np.linspace(np.log(0.5), np.log(4.0), 61)
    points = np.exp(np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1))
    density = np.exp(log_density(points, 0.2) + np.log(points).sum(axis=-1))
    share = integrate.simpson(integrate.simpson(density, x=grid), x=grid)
    pairs = draws[:, :2]
    inside = ((pairs > 0.5) & (pairs < 4.0)).all(axis=1)
    assert abs(inside.mean() - share) < 4 * inside.std() / np.sqrt(len(pairs))


def test_the_density_grows_without_bound_as_all_lengthscales_tend_to_zero_together():
    densities = log_density(np.array([[1e-2], [1e-4], [1e-6]]) * np.ones((1, 5)))
    assert np.all(np.diff(densities) > 1.0)


def test_gradients_are_those_of_finite_differences(derivative):
    prior = SAASLengthscales(3)
    density = jax.jit(jax.value_and_grad(lambda t: prior.log_prob(jnp.stack([jnp.float64(0.5), t, jnp.float64(9.0)]))))
    np.testing.assert_allclose(density(3.0)[1], derivative(lambda t: density(t)[0], 3.0), rtol=1e-8)


def test_it_stands_in_a_kernel_and_in_a_study_by_its_name():
    kernel = RBF(SAASLengthscales(4, 0.2), 1.0)
    spec = to_spec(kernel)
    assert spec["lengthscale"] == {"prior": "SAASLengthscales", "num_features": 4, "scale": 0.2}
    read = from_spec(spec, "kernels").lengthscale
    assert (read.num_features, float(read.scale), read.event_shape) == (4, 0.2, (4,))
    sites = kpp.priors.prior_sites("kernel", kernel)
    assert {name: site.shape() for name, site in sites.items()} == {"kernel.lengthscale": (4,)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "`num_features` must be at least 1, got 0"),
        ((2.5,), "`num_features` must be an integer"),
        ((3, 0.0), "`scale` must be"),
        ((3, np.nan), "`scale` must be"),
        ((3, "a"), "`scale` must be"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        SAASLengthscales(*arguments)


@pytest.mark.nightly
def test_two_relevant_features_of_twenty_are_found_better_than_with_independent_priors():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(240, 20))
    truth = np.sin(6 * x[:, 3]) + 2 * x[:, 11] ** 2
    truth = (truth - truth.mean()) / truth.std()
    y = truth + 0.1 * rng.normal(size=240)
    errors, shortest = {}, {}
    for name, prior in {"saas": SAASLengthscales(20), "independent": dist.LogNormal(0.0, 1.0).expand([20])}.items():
        model = GPRegression(RBF(prior, dist.LogNormal(0.0, 1.0)), dist.HalfNormal(0.5))
        inference = kpp.NUTS(num_warmup=200, num_samples=200, num_chains=1, progress=False)
        fit = model.fit(jax.random.key(0), x[:40], y[:40], inference=inference)
        mean = fit.predict(x[40:])["mean"].mean(("chain", "draw")).values
        errors[name] = np.sqrt(np.mean((mean - truth[40:]) ** 2))
        medians = np.median(np.asarray(fit.draws["kernel.lengthscale"]).reshape(-1, 20), axis=0)
        assert set(np.argsort(medians)[:2]) == {3, 11}
        shortest[name] = np.delete(medians, [3, 11]).min()
    assert errors["saas"] < 0.7 * errors["independent"]
    assert shortest["saas"] > 2 * shortest["independent"]
