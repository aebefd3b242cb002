"""Log likelihood and replicates of one draw share the posterior, unless a model has methods of its own."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.gp import AbstractGPModel, BernoulliLikelihood, GaussianLikelihood, condition
from kpp.kernels import RBF
from kpp_models import GPClassification, GPRegression

X = np.random.default_rng(0).normal(size=(9, 2))
Y = np.sin(X[:, 0])
LABELS = (Y > 0).astype(float)
KEY = jax.random.key(1)


class Counting(AbstractGPModel):
    """A model that counts its posteriors."""

    kernel: Any
    labels: bool = False
    calls: ClassVar[list[int]] = []

    def numpyro_model(self, x, y=None):
        raise NotImplementedError

    def prepare(self, x, y):
        raise NotImplementedError

    def posterior(self, sample, data):
        self.calls.append(1)
        likelihood = BernoulliLikelihood(data["y"], "logit") if self.labels else GaussianLikelihood(data["y"], 0.1)
        return condition(self.kernel, data["x"], likelihood)


class DrawsZeros(Counting):
    def draw_predictive(self, rng_key, sample, data, x):
        return jnp.zeros(len(x))


class ReplicatesOnes(Counting):
    def replicate(self, rng_key, sample, data):
        return {"y": jnp.ones(len(data["y"]))}


@pytest.mark.nightly_variants("laplace")
@pytest.mark.slow_variants("laplace", "exact")
@pytest.mark.parametrize(
    ("model", "y"), [(GPRegression(RBF(1.2), 0.1), Y), (GPClassification(RBF(1.2)), LABELS)], ids=["exact", "laplace"]
)
def test_together_they_are_what_they_are_alone(model, y):
    data = {"x": jnp.asarray(X), "y": jnp.asarray(y)}

    @jax.jit
    def values(data):
        return model.pointwise(KEY, {}, data), model.log_likelihood({}, data), model.replicate(KEY, {}, data)

    together, likelihoods, replicates = values(data)
    np.testing.assert_allclose(together[0]["y"], likelihoods["y"], rtol=1e-12)
    np.testing.assert_allclose(together[1]["y"], replicates["y"], rtol=1e-9)  # a factor with jitter


@pytest.mark.parametrize("labels", [False, True])
def test_the_posterior_is_computed_once(labels):
    model = Counting(RBF(1.2), labels)
    Counting.calls.clear()
    jax.eval_shape(lambda data: model.pointwise(KEY, {}, data), {"x": X, "y": LABELS})  # no value is needed to count
    assert len(Counting.calls) == 1


@pytest.mark.slow_variants("DrawsZeros-0.0", "ReplicatesOnes-1.0")
@pytest.mark.parametrize(("cls", "expected"), [(DrawsZeros, 0.0), (ReplicatesOnes, 1.0)])
def test_a_model_s_own_draws_are_used(cls, expected):
    data = {"x": jnp.asarray(X), "y": jnp.asarray(Y)}
    likelihoods, replicates = jax.jit(lambda data: cls(RBF(1.2)).pointwise(KEY, {}, data))(data)
    np.testing.assert_array_equal(replicates["y"], np.full(9, expected))
    alone = jax.jit(lambda data: GPRegression(RBF(1.2), 0.1).log_likelihood({}, data))(data)
    np.testing.assert_allclose(likelihoods["y"], alone["y"], rtol=1e-12)
