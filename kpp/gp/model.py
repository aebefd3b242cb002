"""The base class of Gaussian-process models: a subclass writes three methods, all others follow from its posterior."""

from __future__ import annotations

import abc
from typing import ClassVar, TypeVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.gp.conditioned.process import ConditionedProcess, moments_in_blocks
from kpp.gp.fields import replace_priors
from kpp.gp.laws.gaussian_laws import draw_joint
from kpp.gp.laws.observations import FUNCTION_VALUES, LATENT_SITES, WHITENED
from kpp.inference.model import AbstractModel, Data, Sample
from kpp.priors import substitute
from kpp.typing import Points, RngKey

Model = TypeVar("Model", bound="AbstractGPModel")


class AbstractGPModel(AbstractModel):
    r"""A model whose function has a Gaussian posterior under each draw of the hyperparameters.

    A subclass writes three methods: `numpyro_model`, `prepare` and `posterior`. Predictions, draws, the RKHS function,
    its posterior and the pointwise log likelihood follow from `posterior` and from the likelihood that it holds.

    The observed site is called ``y``. The points of the observations are ``data["x"]``; a model whose observations do
    not belong to single points overrides `log_likelihood` and `replicate`.
    """

    latent_sites: ClassVar[tuple[str, ...]] = LATENT_SITES

    @abc.abstractmethod
    def posterior(self, sample: Sample, data: Data) -> ConditionedProcess:
        """Return the Gaussian process conditioned on the data, under one draw.

        Usually this is one call of `kpp.gp.condition` or `kpp.gp.condition_on_values` with the kernel, the mean and the
        likelihood of ``self.at(sample)``.

        Args:
            sample: One draw.
            data: The data.

        Returns:
            The posterior, with the likelihood of the observations.
        """

    def at(self: Model, sample: Sample) -> Model:
        """Return this model with the values of one draw in place of its priors."""
        return replace_priors(self, lambda name, value: substitute(name, value, sample))

    def variance_scale(self, posterior: ConditionedProcess, x: Points) -> Float[Array, ""]:
        """Return the scale of the prior covariance; the nugget of predictive draws is proportional to it.

        By default it is the mean prior variance at the points.
        """
        return jnp.mean(posterior.kernel.diagonal(x))

    def log_likelihood(self, sample: Sample, data: Data) -> dict[str, Array]:
        r"""Return the pointwise log likelihood of one draw; see `AbstractModel.log_likelihood`.

        If the function is integrated out, it is :math:`\log p(y_i \mid y_{-i})` in closed form: exact for a Gaussian
        likelihood, by the Laplace cavity for any other one. If the latent values are drawn, it is :math:`\log p(y_i
        \mid f_i)`; if the values u at inducing points are drawn, it is :math:`\log p(y_i \mid u)`.
        """
        return _log_likelihood(self.posterior(sample, data), data)

    def latent_values(self, sample: Sample, data: Data) -> dict[str, Array]:
        # Known only where an inference has drawn them.
        held_out = self.posterior(sample, data).held_out if WHITENED in sample else None
        return {} if held_out is None else {FUNCTION_VALUES: held_out()[0]}

    @property
    def observes_points(self) -> bool:
        # A model that overrides it has observations that do not belong to single points.
        return type(self).log_likelihood is AbstractGPModel.log_likelihood

    def held_out_mean(self, sample: Sample, data: Data) -> Array:
        r"""Return :math:`E[y_i \mid y_{-i}]` for every i, under one draw: the means of the laws of `log_likelihood`."""
        posterior = self.posterior(sample, data)
        mean, variance = held_out_law(posterior, data)
        predicted = posterior.likelihood.predict(mean, jnp.zeros_like(mean) if variance is None else variance)
        return predicted.get("response_mean", mean)

    def predictive(self, sample: Sample, data: Data, x: Points, *, covariance: bool = False) -> dict[str, Array]:
        posterior = self.posterior(sample, data)
        latent = posterior.moments(x, covariance=True) if covariance else moments_in_blocks(posterior.moments, x)
        result = {"mean": latent.mean, "latent_variance": latent.variance}
        result |= posterior.likelihood.predict(latent.mean, latent.variance)
        return result if latent.covariance is None else result | {"latent_covariance": latent.covariance}

    def draw_latent(self, rng_key: RngKey, sample: Sample, data: Data, x: Points) -> Float[Array, " p"]:
        """Return one joint draw of the function's values at p points, given the data and one draw of the sites."""
        posterior = self.posterior(sample, data)
        return draw_joint(rng_key, posterior.joint(x), self.variance_scale(posterior, x))

    def draw_predictive(self, rng_key: RngKey, sample: Sample, data: Data, x: Points) -> Array:
        posterior = self.posterior(sample, data)
        scale = self.variance_scale(posterior, x)
        return posterior.likelihood.draw_predictive(rng_key, posterior.joint(x), scale)

    def replicate(self, rng_key: RngKey, sample: Sample, data: Data) -> dict[str, Array]:
        if type(self).draw_predictive is not AbstractGPModel.draw_predictive:
            return super().replicate(rng_key, sample, data)
        return self._replicate(rng_key, self.posterior(sample, data), data)

    def pointwise(self, rng_key: RngKey, sample: Sample, data: Data) -> tuple[dict[str, Array], dict[str, Array]]:
        names = ("log_likelihood", "replicate", "draw_predictive")
        if any(getattr(type(self), name) is not getattr(AbstractGPModel, name) for name in names):
            return super().pointwise(rng_key, sample, data)
        posterior = self.posterior(sample, data)
        return _log_likelihood(posterior, data), self._replicate(rng_key, posterior, data)

    def function_draw(self, sample: Sample, data: Data) -> RKHSFunction:
        """Return the posterior mean under one draw; see `AbstractModel.function_draw`."""
        return self.posterior(sample, data).function()

    def posterior_draw(self, sample: Sample, data: Data) -> GPPosterior:
        """Return the posterior of the function under one draw; see `AbstractModel.posterior_draw`."""
        return self.posterior(sample, data).posterior()

    def _replicate(self, rng_key: RngKey, posterior: ConditionedProcess, data: Data) -> dict[str, Array]:
        x = data["x"]
        law = posterior.joint(x) if posterior.at_points is None else posterior.at_points()
        return {"y": posterior.likelihood.draw_again(rng_key, law, self.variance_scale(posterior, x))}


def held_out_law(posterior: ConditionedProcess, data: Data) -> tuple[Array, Array | None]:
    """Return mean and variance of the latent value of every observation given all others, or given drawn values."""
    return moments_in_blocks(posterior.moments, data["x"])[:2] if posterior.held_out is None else posterior.held_out()


def _log_likelihood(posterior: ConditionedProcess, data: Data) -> dict[str, Array]:
    mean, variance = held_out_law(posterior, data)
    if variance is None:
        return {"y": posterior.likelihood.log_density(mean)}
    return {"y": posterior.likelihood.marginal_log_density(mean, variance)}
