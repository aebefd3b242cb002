"""Every check of models passes on an honest model and catches the violation planted for it."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from kpp.data.tables import read_points
from kpp.foundation.validation import as_targets
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.inference import AbstractModel
from kpp.kernels import RBF
from kpp.priors import sample as draw_priors
from kpp.priors import substitute
from kpp.testing import check_model
from kpp.testing.suite import checks_of
from kpp.typing import Leaf

X = np.random.default_rng(0).normal(size=(8, 2))
Y = np.random.default_rng(1).normal(size=8)
CHECKS = {check.__name__: check for check in checks_of(AbstractModel)}


def default_prior():
    return dist.Normal(0.0, 1.0)


class Honest(AbstractModel):
    """Every target is the same number and noise; the planted ones change one thing."""

    level: Leaf = eqx.field(default_factory=default_prior)
    noise_variance: jax.Array = eqx.field(default=0.5, converter=jnp.asarray)

    def prepare(self, x, y):
        points, schema = read_points(x)
        return self, {"x": jnp.asarray(points), "y": as_targets(y, points.shape[0])}, schema

    def numpyro_model(self, x, y=None):
        level = jnp.sum(draw_priors("level", self.level))
        with numpyro.plate("instance", x.shape[0]):
            numpyro.sample("y", self.likelihood(level), obs=y)

    def likelihood(self, level):
        return dist.Normal(level, jnp.sqrt(self.noise_variance))

    def level_of(self, sample):
        return jnp.sum(substitute("level", self.level, sample))

    def log_likelihood(self, sample, data):
        return {"y": self.likelihood(self.level_of(sample)).log_prob(data["y"])}

    def predictive(self, sample, data, x, *, covariance=False):
        mean = jnp.broadcast_to(self.level_of(sample), x.shape[:1])
        return {"mean": mean, "noise_variance": jnp.full_like(mean, self.noise_variance)}

    def draw_predictive(self, rng_key, sample, data, x):
        return self.likelihood(self.level_of(sample)).sample(rng_key, x.shape[:1])

    def function_draw(self, sample, data):
        return RKHSFunction(RBF(1.0), data["x"], jnp.zeros(data["x"].shape[0]), self.level_of(sample))


class NotAModel(eqx.Module):
    pass


class ObservesNothing(Honest):
    def numpyro_model(self, x, y=None):
        Honest.numpyro_model(self, x, None)


class OtherName(Honest):
    def numpyro_model(self, x, y=None):
        level = draw_priors("other", self.level)
        numpyro.sample("y", self.likelihood(level).expand(x.shape[:1]), obs=y)


class NeedsTargets(Honest):
    def numpyro_model(self, x, y=None):
        if y is not None:
            Honest.numpyro_model(self, x, y)


class ReturnsDraws(Honest):
    def fit(self, rng_key, x, y, *, inference=None):
        return Honest.fit(self, rng_key, x, y, inference=inference).draws


class Restless(Honest):
    def prepare(self, x, y):
        model, data, schema = Honest.prepare(self, x, y)
        return model, data | {"y": data["y"] + np.random.default_rng().normal()}, schema


class UnnamedAxis(Honest):
    level: Leaf = eqx.field(default_factory=lambda: dist.Normal(0.0, 1.0).expand([3]))

    def site_dims(self, data):
        return {"level": ("level_dim_0",)}


class InfiniteLikelihood(Honest):
    def log_likelihood(self, sample, data):
        return {"y": jnp.full(data["y"].shape, -jnp.inf)}


class NegativeVariance(Honest):
    def predictive(self, sample, data, x, *, covariance=False):
        found = Honest.predictive(self, sample, data, x)
        return found | {"noise_variance": -found["noise_variance"]}


class Centered(Honest):
    def predictive(self, sample, data, x, *, covariance=False):
        found = Honest.predictive(self, sample, data, x)
        return found | {"mean": found["mean"] + x[:, 0] - jnp.mean(x[:, 0])}


class InfiniteDraws(Honest):
    def draw_predictive(self, rng_key, sample, data, x):
        return jnp.full(x.shape[:1], jnp.inf)


class OtherFunction(Honest):
    def function_draw(self, sample, data):
        return Honest.function_draw(self, sample, data) + 1.0


class OtherPosterior(Honest):
    """Its predictions say that the function varies by 1 around its mean, its posterior that it varies as the kernel."""

    def predictive(self, sample, data, x, *, covariance=False):
        return Honest.predictive(self, sample, data, x) | {"latent_covariance": jnp.eye(x.shape[0])}

    def posterior_draw(self, sample, data):
        return GPPosterior(self.function_draw(sample, data), jnp.zeros((data["x"].shape[0], 1)))


class Doubling(Honest):
    def __init__(self, level=None, noise_variance=0.5):
        self.level = default_prior() if level is None else level
        self.noise_variance = 2.0 * jnp.asarray(noise_variance)


class TakesAnything(Honest):
    def prepare(self, x, y):
        return Honest.prepare(self, np.nan_to_num(x), y)


PLANTED = {
    "derives_from_the_abstract_class": (NotAModel, "NotAModel does not derive from AbstractModel"),
    "runs_under_numpyro": (ObservesNothing, "no site is observed"),
    "priors_are_the_latent_sites": (OtherName, r"the prior level has no site; the latent sites are \['other'\]"),
    "draws_from_the_prior": (NeedsTargets, "without targets there is no site y"),
    "fits": (ReturnsDraws, "`fit` returns dict"),
    "the_same_key_gives_the_same_fit": (Restless, "the draws of level differ"),
    "result_has_the_groups_of_arviz": (UnnamedAxis, r"unnamed dimensions \['level_dim_0'\]"),
    "log_likelihood_is_pointwise": (InfiniteLikelihood, "the log likelihood of y is not finite"),
    "predicts_at_new_points": (NegativeVariance, "noise_variance is negative"),
    "predictions_are_independent": (Centered, "mean of one point among two sets of others: differ by"),
    "draws_predictions": (InfiniteDraws, "the draws are not finite"),
    "function_agrees_with_predictions": (OtherFunction, "the function and the predicted mean: differ by"),
    "posterior_agrees_with_predictions": (OtherPosterior, "the posterior's covariance and the predicted one: differ"),
    "saves_and_loads": (Doubling, "noise_variance of the fit and of its copy: differ by"),
    "survives_the_round_trip_through_a_spec": (Doubling, "the copy is"),
    "refuses_bad_input": (TakesAnything, "NaN in x is accepted"),
}


def test_every_check_has_a_planted_violation():
    assert set(PLANTED) == set(CHECKS)


@pytest.mark.slow
def test_honest_model_passes():
    check_model(Honest(), X, Y)


@pytest.mark.slow  # each violation is a model of its own, which is compiled
@pytest.mark.parametrize("name", CHECKS)
def test_planted_violation_is_caught(name, register):
    broken, message = PLANTED[name]
    if broken is Doubling:
        register("models", "Doubling", broken)
    with pytest.raises(AssertionError, match=message):
        CHECKS[name](broken(), X, Y)
