"""The common part of Gaussian processes with one latent value per row."""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

import abc
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
from jaxtyping import Array

from kpp.data.tables import Schema
from kpp.foundation.validation import one_of
from kpp.gp import AbstractGPModel, AbstractPointwiseLikelihood, condition, condition_on_values
from kpp.gp.toolkit import INDUCING, WHITENED, ConditionedProcess, PriorMean, check_mean_fits
from kpp.inference import Data
from kpp.inference.toolkit import Sample
from kpp.kernels import AbstractKernel
from kpp_models.tables.inducing import AbstractInducing, check_minibatch
from kpp_models.tables.numpyro_functions import LATENTS

Model = TypeVar("Model", bound="AbstractLatentGP")


class _Fields:
    """The fields of every final class, in a plain class for the sake of type checkers; see `kpp.foundation.modules`."""

    kernel: eqx.AbstractVar[AbstractKernel]
    mean: eqx.AbstractVar[Any]
    minibatch: eqx.AbstractVar[int | None]


class AbstractLatentGP(_Fields, AbstractInducing, AbstractGPModel):
    """A Gaussian process f with observations that depend on one value of f each; a final class has the fields above."""

    def __check_init__(self) -> None:
        one_of(self.latent, "latent", LATENTS)
        check_minibatch(self.minibatch, self.latent)

    @abc.abstractmethod
    def observed(self, data: Data) -> AbstractPointwiseLikelihood:
        """Return the likelihood with the observations, for a model without priors."""

    def read_observations(
        self: Model, x: object, y: object, read_targets: Callable[..., Array]
    ) -> tuple[Model, dict[str, Any], Schema]:
        """Read points and observations, and place the inducing points."""
        model, data, schema = self.read_and_place(x, y, read_targets, by_features=self.latent == "laplace")
        check_mean_fits(self.mean, data["x"])
        return model, data, schema

    def posterior(self, sample: Sample, data: Data) -> ConditionedProcess:
        model = self.at(sample)
        return condition_process(
            sample, data["x"], model.kernel, model.observed(data), model.mean, model.inducing_points
        )

    def site_dims(self, data: Data) -> dict[str, tuple[str, ...]]:
        return {WHITENED: ("coordinate",), INDUCING: ("coordinate",), **super().site_dims(data)}


def condition_process(
    sample: Sample,
    x: Any,
    kernel: AbstractKernel,
    likelihood: AbstractPointwiseLikelihood,
    mean: PriorMean = 0.0,
    inducing: Any = None,
) -> ConditionedProcess:
    r"""Return the posterior of f under one draw; the arguments are those of `observe_process`, without priors.

    By Laplace's approximation, :math:`R R^\top = W^{1/2} B^{-1} W^{1/2} = (K + W^{-1})^{-1}` (Rasmussen and Williams
    2006, equations 3.24 and 3.27). If latent values are drawn, with ``latent="sample"`` or by
    ``kpp.Laplace(importance=True)``, it is conditioned on them, :math:`R R^\top = K^{-1}`, so that the variance at the
    training points is 0; with ``latent="inducing"`` on the values at the inducing points.
    """
    if INDUCING in sample:
        return condition_on_values(kernel, inducing, sample[INDUCING], likelihood, mean, observed=x)
    if WHITENED in sample:
        return condition_on_values(kernel, x, sample[WHITENED], likelihood, mean)
    return condition(kernel, x, likelihood, mean)
