r"""Gaussian-process classification into two classes, with priors on the kernel and the mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.data.labels import classes_field, read_labels
from kpp.data.tables import Schema
from kpp.foundation.validation import one_of
from kpp.gp import BernoulliLikelihood
from kpp.gp.toolkit import LINKS, example_points, mean_field
from kpp.inference import Data
from kpp.kernels import RBF, AbstractKernel
from kpp.typing import RngKey
from kpp_models.tables.latent_gp import AbstractLatentGP
from kpp_models.tables.numpyro_functions import gp_classification


class GPClassification(AbstractLatentGP):
    r"""Gaussian-process classification into two classes.

    .. math:: p(y_i = 1 \mid f) = \sigma(f(x_i)), \qquad f \sim GP(m, k)

    The labels may be any two values; they are read as 0 and 1 in the order of `classes`.

    With ``latent="laplace"`` inference is only about the hyperparameters, by Laplace's approximation of the evidence,
    and the pointwise log likelihood is leave-one-out by the Laplace cavity (`kpp.gp.toolkit.leave_one_out_latent`),
    which is also an approximation. With ``latent="sample"`` the whitened latent values are sampled too, nothing is
    approximated, and the pointwise log likelihood is the usual :math:`\log p(y_i \mid f_i)`. With
    ``latent="inducing"``, for many rows, the values at w inducing points are sampled or learned, and the rest is
    integrated out in a lower bound of the evidence; `kpp.SVI` may take a minibatch of the rows in each step.

    `predict` gives the mean and variance of the latent function and the probability of label 1. `function` is the
    latent mean function (log-odds, for the logit).

    Args:
        kernel: k, with numbers or priors as leaves.
        mean: m, the prior mean of the latent function: a number, a prior, or a module from points (n, d) to (n,) that
            may hold priors, such as `kpp.gp.LinearMean`. With a module, `function` and what needs it are not available.
        link: "logit" or "probit".
        latent: "laplace", "sample" or "inducing".
        classes: The two labels; `predict` gives the probability of the second. By default those of the data, in the
            order of a categorical column, else ascending.
        num_inducing, inducing_points, learn_inducing, seed: As for `GPRegression`.
        minibatch: The number of rows in each step of `kpp.SVI`, with "inducing"; all by default.

    Raises:
        ValueError: If `mean` is not one finite number, `link` or `latent` is unknown, or inducing points or a minibatch
            are given or missing against `latent`.

    References:
        Rasmussen and Williams (2006), algorithms 3.1, 3.2 and 5.1; Hensman, Matthews and Ghahramani, Scalable
        variational Gaussian process classification, 2015.
    """

    kernel: AbstractKernel
    mean: Any = mean_field(default=0.0)
    link: str = eqx.field(static=True, default="logit")
    latent: str = eqx.field(static=True, default="laplace")
    minibatch: int | None = eqx.field(static=True, default=None, kw_only=True)
    classes: tuple[Any, Any] | None = classes_field()

    def __check_init__(self) -> None:
        one_of(self.link, "link", LINKS)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[GPClassification, Array, Array]]:
        x, y = example_points(rng_key)
        labels = (y > jnp.median(y)).astype(y.dtype)
        prior = dist.LogNormal(0.0, 0.5)
        yield cls(RBF(lengthscale=prior.expand([2]), variance=prior)), x, labels
        yield cls(RBF(prior), mean=dist.Normal(0.0, 1.0), link="probit", latent="sample"), x, labels
        yield cls(RBF(prior), latent="inducing", num_inducing=5), x, labels

    def prepare(self, x: object, y: object) -> tuple[GPClassification, dict[str, Any], Schema]:
        model, data, schema = self.read_observations(x, y, lambda y, name: read_labels(y, self.classes, name)[0])
        return dataclasses.replace(model, classes=read_labels(y, self.classes)[1]), data, schema

    def numpyro_model(self, x: Float[Array, "n d"], y: Float[Array, " n"] | None = None) -> None:
        """The NumPyro model: `gp_classification` with these fields."""
        gp_classification(x, y, self.kernel, self.mean, self.link, self.latent, self.inducing_points, self.minibatch)

    def observed(self, data: Data) -> BernoulliLikelihood:
        return BernoulliLikelihood(data["y"], self.link)

    @property
    def positive_class(self) -> Any:
        return None if self.classes is None else self.classes[1]
