"""Every check of converters passes on an honest one and catches the violation planted for it."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

import kpp
from kpp.functions import RKHSFunction
from kpp.kernels import RBF
from kpp.testing import check_converter
from kpp.testing.suite import checks_of

RNG = np.random.default_rng(0)
POINTS, X = RNG.normal(size=(6, 2)), RNG.normal(size=(3, 2))
CHECKS = {check.__name__: check for check in checks_of(kpp.AbstractConverter)}


@dataclasses.dataclass
class Model:
    """A Gaussian process with a kernel exp(-|x - x'|^2 / 2) and noise of variance 0.1."""

    targets: np.ndarray
    has_covariance: bool = True

    def predict(self, x):
        gram, cross = kernel(POINTS, POINTS) + 0.1 * np.eye(6), kernel(x, POINTS)
        return cross @ np.linalg.solve(gram, self.targets), kernel(x, x) - cross @ np.linalg.solve(gram, cross.T)


def kernel(x1, x2):
    return np.exp(-0.5 * ((x1[:, None] - x2[None]) ** 2).sum(-1))


PROCESS, RIDGE = Model(np.sin(POINTS[:, 0])), Model(np.sin(POINTS[:, 0]), has_covariance=False)


class Honest(kpp.AbstractConverter):
    """Converts `Model`; the planted ones change one thing."""

    def gp_posterior(self, model):
        if not model_of(model).has_covariance:
            raise TypeError("there is no covariance")
        root = np.linalg.inv(np.linalg.cholesky(kernel(POINTS, POINTS) + 0.1 * np.eye(6))).T
        return kpp.GPPosterior(self.rkhs_function(model), root)

    def rkhs_function(self, model):
        weights = np.linalg.solve(kernel(POINTS, POINTS) + 0.1 * np.eye(6), model_of(model).targets)
        return RKHSFunction(RBF(1.0), POINTS, weights)

    def has_posterior(self, model):
        return model.has_covariance

    @classmethod
    def examples(cls, rng_key):
        yield cls(), PROCESS, X, *PROCESS.predict(X)
        yield cls(), RIDGE, X, RIDGE.predict(X)[0], None


def model_of(value):
    if not isinstance(value, Model):
        raise TypeError(f"a {type(value).__name__} is not a Model")
    return value


class NeedsAnArgument(Honest):
    def __init__(self, model):
        self.model = model


class OtherMean(Honest):
    def rkhs_function(self, model):
        return Honest.rkhs_function(self, model) + 1e-6


class Values(Honest):
    def rkhs_function(self, model):
        return Honest.rkhs_function(self, model)(X)


class WithNoise(Honest):
    """The covariance of observations, not of the function: the prior has more variance."""

    def gp_posterior(self, model):
        posterior = Honest.gp_posterior(self, model)
        mean = RKHSFunction(RBF(1.0, 1.1), POINTS, posterior.mean.coefficients / 1.1)
        return kpp.GPPosterior(mean, posterior.root / 1.1)


class Overstates(Honest):
    def has_posterior(self, model):
        return True


class Invents(Honest):
    def gp_posterior(self, model):
        return Honest.gp_posterior(self, PROCESS)


class TakesAll(Honest):
    def rkhs_function(self, model):
        return Honest.rkhs_function(self, PROCESS)


PLANTED = [
    (object(), PROCESS, "derives_from_the_abstract_class", "does not derive from AbstractConverter"),
    (NeedsAnArgument(None), PROCESS, "needs_no_arguments", "without arguments"),
    (OtherMean(), PROCESS, "function_predicts_as_the_model", "the model's own: differ by 1e-06"),
    (Values(), PROCESS, "function_predicts_as_the_model", "returns a ArrayImpl"),
    (WithNoise(), PROCESS, "posterior_is_the_models_own", "covariances of `gp_posterior`"),
    (
        Overstates(),
        RIDGE,
        "has_posterior_tells_the_truth",
        "is True, and the example has no covariance",
    ),
    (Invents(), RIDGE, "has_posterior_tells_the_truth", "a model without a posterior is accepted"),
    (TakesAll(), PROCESS, "refuses_other_classes", "a plain object as a function is accepted"),
]


def example(converter, model):
    mean, covariance = model.predict(X)
    return converter, model, X, mean, covariance if model.has_covariance else None


@pytest.mark.slow
def test_an_honest_converter_passes():
    for parts in Honest.examples(jax.random.key(0)):
        check_converter(*parts)


@pytest.mark.parametrize(("converter", "model", "name", "message"), PLANTED, ids=lambda part: type(part).__name__)
def test_a_planted_violation_is_caught(caught, converter, model, name, message):
    assert message in caught(CHECKS[name], *example(converter, model))


def test_a_report_names_the_law():
    with pytest.raises(AssertionError, match=r"OtherMean: 2 conformance.*\n.*function_predicts_as_the_model: rkhs"):
        check_converter(*example(OtherMean(), PROCESS))
