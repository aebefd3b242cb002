"""Discrete latent sites: outliers among observations, against the model in which they are summed out by hand."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density, potential_energy

import kpp
from kpp.inference import AbstractModel, inspect_sites
from kpp.inference.methods.discrete import Marginalized
from kpp.storage import arviz_data

OUTLIER, NOISE = 3.0, 0.4
Y = np.array([0.2, -0.1, 0.4, 2.6, 0.0, -3.1])


class Outliers(AbstractModel):
    """y_i ~ N(center, 0.4^2), or N(center, 3^2) if z_i = 1, z_i ~ Bernoulli(share)."""

    law: type = dist.Bernoulli

    def numpyro_model(self, x, y=None):
        center = numpyro.sample("center", dist.Normal(0.0, 1.0))
        share = numpyro.sample("share", dist.Beta(2.0, 5.0))
        with numpyro.plate("instance", x.shape[0]):
            z = numpyro.sample("z", self.law(share))
            numpyro.sample("y", dist.Normal(center, jnp.where(z == 1, OUTLIER, NOISE)), obs=y)
        numpyro.deterministic("outliers", jnp.sum(z))

    def prepare(self, x, y):
        return self, {"x": jnp.asarray(x), "y": jnp.asarray(y)}, None

    def log_likelihood(self, sample, data):
        return {"y": self._law(sample).log_prob(data["y"])}

    def replicate(self, rng_key, sample, data):
        return {"y": self._law(sample).sample(rng_key)}

    def predictive(self, sample, data, x, *, covariance=False):
        return {"mean": jnp.full(x.shape[0], sample["center"])}

    def draw_predictive(self, rng_key, sample, data, x):
        raise NotImplementedError

    def function_draw(self, sample, data):
        raise NotImplementedError

    def _law(self, sample):
        return dist.Normal(sample["center"], jnp.where(sample["z"] == 1, OUTLIER, NOISE))


def by_hand(x, y):
    center = numpyro.sample("center", dist.Normal(0.0, 1.0))
    share = numpyro.sample("share", dist.Beta(2.0, 5.0))
    parts = [(1 - share, NOISE), (share, OUTLIER)]
    terms = jnp.stack([jnp.log(weight) + dist.Normal(center, scale).log_prob(y) for weight, scale in parts])
    numpyro.factor("y", jnp.sum(jax.nn.logsumexp(terms, axis=0)))


DATA = {"x": jnp.zeros((6, 1)), "y": jnp.asarray(Y)}


def fit_by(inference):
    pytest.importorskip("funsor")
    return Outliers().fit(jax.random.key(0), DATA["x"], Y, inference=inference, num_prior_samples=3)


@pytest.fixture(scope="module")
def laplace_fit():
    return fit_by(kpp.Laplace(num_samples=400, progress=False))


def test_the_density_is_that_of_the_mixture():
    pytest.importorskip("funsor")
    model = Marginalized(Outliers().numpyro_model, ("z",), ("y", "outliers"), -2)
    assert [name for name, site in inspect_sites(model, DATA).items() if site.kind == "latent"] == ["center", "share"]
    for center, share in ((0.3, 0.2), (-1.0, 0.6)):
        values = {"center": jnp.asarray(center), "share": jnp.asarray(share)}
        found, expected = (log_density(each, (), DATA, values)[0] for each in (model, by_hand))
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        found, expected = (potential_energy(each, (), DATA, values) for each in (model, by_hand))
        np.testing.assert_allclose(found, expected, rtol=1e-12)  # with the Jacobian of the share's bijection


@pytest.mark.slow
def test_draws_are_those_of_the_mixture_and_indicators_follow_bayes_rule(laplace_fit):
    draws = {name: np.asarray(value)[0] for name, value in laplace_fit.draws.items()}
    expected = kpp.Laplace(num_samples=400, progress=False).run(
        jax.random.split(jax.random.key(0), 3)[0], by_hand, DATA
    )
    for name in ("center", "share"):  # the same key, density and inference; modes are found to about 1e-9
        np.testing.assert_allclose(draws[name], expected.samples[name][0], rtol=1e-6, atol=1e-8)
    residual = Y[None] - draws["center"][:, None]
    weights = [np.exp(-0.5 * (residual / scale) ** 2) / scale for scale in (NOISE, OUTLIER)]
    share = draws["share"][:, None]
    chance = share * weights[1] / (share * weights[1] + (1 - share) * weights[0])
    # Each indicator is one Bernoulli draw given the draw of the others: 4.5 standard errors of their mean.
    error = np.sqrt(np.mean(chance * (1 - chance), axis=0) / 400)
    assert np.all(np.abs(draws["z"].mean(0) - chance.mean(0)) < 4.5 * error + 1e-9)
    np.testing.assert_array_equal(draws["outliers"], draws["z"].sum(-1))


@pytest.mark.slow
def test_indicators_are_a_group_of_their_own(laplace_fit, tmp_path):
    groups = arviz_data.groups(laplace_fit.idata)
    assert groups["latent"]["z"].dims == ("chain", "draw", "instance")
    assert set(groups["posterior"]) == {"center", "share", "outliers"}
    assert set(groups["log_prior"]) == {"center", "share"}
    assert laplace_fit.sample(jax.random.key(1), 7).draws["z"].shape == (1, 7, 6)


@pytest.mark.nightly_variants("SVI", "NUTS")
@pytest.mark.slow
@pytest.mark.parametrize(
    "inference",
    [
        kpp.MAP(progress=False),
        kpp.SVI(num_steps=300, num_samples=20, progress=False),
        kpp.NUTS(num_warmup=50, num_samples=20, num_chains=2, progress=False),
    ],
    ids=lambda inference: type(inference).__name__,
)
def test_every_inference_takes_them(inference):
    fit = fit_by(inference)
    assert fit.draws["z"].shape[2:] == (6,)
    # The two extreme observations are 6 and 8 standard deviations of the noise away.
    assert np.asarray(fit.draws["z"])[..., [3, 5]].all()
    if isinstance(inference, kpp.NUTS):
        assert fit.resume(jax.random.key(1), 5).draws["z"].shape == (2, 25, 6)


def test_infinitely_many_values_are_an_error():
    pytest.importorskip("funsor")
    with pytest.raises(ValueError, match="'z' must have finitely many values, .*Poisson"):
        Outliers(dist.Poisson).fit(jax.random.key(0), DATA["x"], Y, inference=kpp.MAP(progress=False))


def test_without_funsor_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpyro.contrib.funsor", None)
    with pytest.raises(ImportError, match=r"\['z'\] need funsor, .*pip install 'kpp\[discrete\]'"):
        Outliers().fit(jax.random.key(0), DATA["x"], Y, inference=kpp.MAP(progress=False))
