r"""Gaussian-process classification into two classes, with priors on the kernel and the mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.gp import (
    LINKS,
    AbstractGPModel,
    BernoulliLikelihood,
    ConditionedProcess,
    check_mean_fits,
    condition,
    condition_on_values,
    example_points,
    mean_field,
    read_data,
)
from kpp.inference import Data, Sample
from kpp.kernels import RBF, AbstractKernel
from kpp.tables import Schema
from kpp.typing import RngKey
from kpp.validation import as_binary_labels, one_of
from kpp_models.tables.numpyro_models import LATENTS, WHITENED, gp_classification

__all__ = ["GPClassification"]


class GPClassification(AbstractGPModel):
    r"""Gaussian-process classification with labels 0 and 1.

    .. math:: p(y_i = 1 \mid f) = \sigma(f(x_i)), \qquad f \sim GP(m, k)

    With ``latent="laplace"`` inference is only about the hyperparameters, by Laplace's approximation of the evidence,
    and the pointwise log likelihood is leave-one-out by the Laplace cavity (`kpp.gp.laplace.leave_one_out_latent`),
    which is also an approximation. With ``latent="sample"`` the whitened latent values are sampled too, nothing is
    approximated, and the pointwise log likelihood is the usual :math:`\log p(y_i \mid f_i)`.

    `predict` gives the mean and variance of the latent function and the probability of label 1. `function` is the
    latent mean function (log-odds, for the logit).

    Args:
        kernel: k, with numbers or priors as leaves.
        mean: m, the prior mean of the latent function: a number, a prior, or a module from points (n, d) to (n,) that
            may hold priors, such as `kpp.gp.LinearMean`. With a module, `function` and what needs it are not available.
        link: "logit" or "probit".
        latent: "laplace" or "sample".

    Raises:
        ValueError: If `mean` is not one finite number, or `link` or `latent` is unknown.

    References:
        Rasmussen and Williams (2006), algorithms 3.1, 3.2 and 5.1.
    """

    kernel: AbstractKernel
    mean: Any = mean_field(default=0.0)
    link: str = eqx.field(static=True, default="logit")
    latent: str = eqx.field(static=True, default="laplace")

    def __check_init__(self) -> None:
        """Raise ValueError if a name is unknown."""
        one_of(self.link, "link", LINKS)
        one_of(self.latent, "latent", LATENTS)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[GPClassification, Array, Array]]:
        """Yield models with points and labels for the conformance suite."""
        x, y = example_points(rng_key)
        labels = (y > jnp.median(y)).astype(y.dtype)
        prior = dist.LogNormal(0.0, 0.5)
        yield cls(RBF(lengthscale=prior.expand([2]), variance=prior)), x, labels
        yield cls(RBF(prior), mean=dist.Normal(0.0, 1.0), link="probit", latent="sample"), x, labels

    def prepare(self, x: object, y: object) -> tuple[GPClassification, dict[str, Any], Schema]:
        """Read the data; see `AbstractModel.prepare`."""
        model, data, schema = read_data(self, x, y, as_binary_labels, by_features=self.latent == "laplace")
        check_mean_fits(self.mean, data["x"])
        return model, data, schema

    def numpyro_model(self, x: Float[Array, "n d"], y: Float[Array, " n"] | None = None) -> None:
        """The NumPyro model: `gp_classification` with these fields."""
        gp_classification(x, y, self.kernel, self.mean, self.link, self.latent)

    def posterior(self, sample: Sample, data: Data) -> ConditionedProcess:
        r"""Return the posterior of the latent function.

        With ``latent="laplace"``, :math:`R R^\top = W^{1/2} B^{-1} W^{1/2} = (K + W^{-1})^{-1}` (Rasmussen and Williams
        2006, equations 3.24 and 3.27), an approximation. With ``latent="sample"`` it is conditioned on the latent
        values that are drawn, :math:`R R^\top = K^{-1}`, so that the variance at the training points is 0.
        """
        model, likelihood = self.at(sample), BernoulliLikelihood(data["y"], self.link)
        if self.latent == "laplace":
            return condition(model.kernel, data["x"], likelihood, model.mean)
        white = sample[WHITENED]
        return condition_on_values(model.kernel, data["x"], white, likelihood, model.mean, at_observations=True)

    def site_dims(self, data: Data) -> dict[str, tuple[str, ...]]:
        """Name the axis of the whitened latent values, which belong to the rows."""
        return {WHITENED: ("instance",)} if self.latent == "sample" else {}
