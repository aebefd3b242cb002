r"""Gaussian processes of classes, counts, levels, numbers with outliers, and others with one latent value per row."""

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
from kpp.foundation.validation import check_type, one_of
from kpp.gp import (
    AbstractPointwiseLikelihood,
    BernoulliLikelihood,
    NegativeBinomialLikelihood,
    PoissonLikelihood,
    StudentTLikelihood,
)
from kpp.gp.toolkit import LINKS, AbstractCountLikelihood, example_points, mean_field
from kpp.inference import Data
from kpp.kernels import RBF, AbstractKernel
from kpp.typing import RngKey
from kpp_models.tables.latent_gp import AbstractLatentGP
from kpp_models.tables.numpyro_functions import generalized_gp, gp_classification


class GeneralizedGP(AbstractLatentGP):
    r"""A Gaussian process whose observations have any likelihood of one latent value.

    .. math:: y_i \sim p(y_i \mid f(x_i)), \qquad f \sim GP(m, k)

    `kpp.gp` has the likelihoods `PoissonLikelihood`, `NegativeBinomialLikelihood`, `BinomialLikelihood`,
    `StudentTLikelihood`, `OrdinalLikelihood`, `GaussianLikelihood` and `BernoulliLikelihood`, and `kpp_models` has
    `FailureTimeLikelihood`; another one is a subclass of `kpp.gp.AbstractPointwiseLikelihood` with two methods. Their
    parameters may be priors.

    With ``latent="laplace"`` f is integrated out by Laplace's approximation, for likelihoods that are log-concave; with
    ``latent="sample"`` the inference samples the whitened latent values, and nothing is approximated; with
    ``latent="inducing"``, for many rows, the values at w inducing points are sampled or learned, and the rest is
    integrated out in a lower bound of the evidence; `kpp.SVI` may take a minibatch of the rows in each step.

    `predict` gives the mean and variance of f and what the likelihood adds: the ``response_mean`` of counts and levels,
    the ``level_probability``, the ``probability`` of a success, or the ``noise_variance``.

    Args:
        kernel: k, with numbers or priors as leaves.
        likelihood: p(y | f), without observations.
        mean: m, the prior mean of f: a number, a prior, or a module from points (n, d) to (n,) that may hold priors,
            such as `kpp.gp.LinearMean`.
        latent: "laplace", "sample" or "inducing".
        num_inducing, inducing_points, learn_inducing, seed: As for `GPRegression`.
        minibatch: The number of rows in each step of `kpp.SVI`, with "inducing"; all by default.

    Raises:
        TypeError: If `likelihood` is not a likelihood.
        ValueError: If `latent` is unknown or the likelihood is not log-concave with "laplace", or inducing points or a
            minibatch are given or missing against `latent`.

    Example:
        >>> model = kpp_models.GeneralizedGP(RBF(1.0), kpp.gp.PoissonLikelihood())
        >>> fit = model.fit(key, table[["dose"]], np.round(np.exp(0.5 * dose)))
        >>> bool(fit.predict(pd.DataFrame({"dose": [1.0]}))["response_mean"] > 0)
        True

    References:
        Rasmussen and Williams (2006), section 3.4; Chan and Dong, Generalized Gaussian process models, 2011; Hensman,
        Matthews and Ghahramani, Scalable variational Gaussian process classification, 2015.
    """

    kernel: AbstractKernel
    likelihood: AbstractPointwiseLikelihood
    mean: Any = mean_field(default=0.0)
    latent: str = eqx.field(static=True, default="laplace")
    minibatch: int | None = eqx.field(static=True, default=None, kw_only=True)

    def __check_init__(self) -> None:
        check_type(self.likelihood, "likelihood", ("AbstractPointwiseLikelihood",))
        if self.latent == "laplace" and not self.likelihood.log_concave:
            raise ValueError(
                f"latent='laplace' needs a log-concave likelihood, got {type(self.likelihood).__name__}; use "
                "latent='inducing' or latent='sample'"
            )

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[GeneralizedGP, Array, Array]]:
        x, y = example_points(rng_key)
        prior = dist.LogNormal(0.0, 0.5)
        counts = jnp.round(jnp.exp(y - jnp.min(y)))
        yield cls(RBF(prior.expand([2])), PoissonLikelihood(), mean=dist.Normal(0.0, 1.0)), x, counts
        yield cls(RBF(prior), NegativeBinomialLikelihood(concentration=prior), latent="sample"), x, counts
        yield cls(RBF(prior), StudentTLikelihood(scale=prior), latent="inducing", num_inducing=5), x, y

    def prepare(self, x: object, y: object, *, exposure: object = None) -> tuple[GeneralizedGP, dict[str, Any], Schema]:
        """Read the data; see `AbstractModel.prepare`.

        Args:
            x: The points.
            y: The observations.
            exposure: Of counts, (n,): the size of what is counted over, or the numbers of trials of a binomial
                likelihood; None for 1.

        Returns:
            The model with feature names resolved and inducing points placed, the data, and the schema of the points.

        Raises:
            ValueError: If the data are invalid; the message names the argument.
        """
        likelihood, known = self.likelihood, {}
        if exposure is not None:
            if not isinstance(likelihood, AbstractCountLikelihood):
                raise ValueError(f"`exposure` must be None for {type(likelihood).__name__}, which has none")
            likelihood = likelihood.with_exposure(exposure)
            known = {"exposure": likelihood.exposure}
        model, data, schema = self.read_observations(x, y, likelihood.read_targets)
        return model, data | known, schema

    def numpyro_model(
        self, x: Float[Array, "n d"], y: Float[Array, " n"] | None = None, exposure: Float[Array, " n"] | None = None
    ) -> None:
        """The NumPyro model: `generalized_gp` with these fields."""
        likelihood = self._with_exposure(exposure)
        generalized_gp(x, y, self.kernel, likelihood, self.mean, self.latent, self.inducing_points, self.minibatch)

    def observed(self, data: Data) -> AbstractPointwiseLikelihood:
        return self._with_exposure(data.get("exposure")).observe(data["y"])

    def _with_exposure(self, exposure: Array | None) -> AbstractPointwiseLikelihood:
        if exposure is None or not isinstance(self.likelihood, AbstractCountLikelihood):
            return self.likelihood
        return self.likelihood.with_exposure(exposure)


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
            may hold priors, such as `kpp.gp.LinearMean`.
        link: "logit" or "probit".
        latent: "laplace", "sample" or "inducing".
        classes: The two labels; `predict` gives the probability of the second. By default those of the data, in the
            order of a categorical column, else ascending.
        num_inducing, inducing_points, learn_inducing, seed: As for `GPRegression`.
        minibatch: The number of rows in each step of `kpp.SVI`, with "inducing"; all by default.

    Raises:
        ValueError: If `mean` is not one finite number, `link` or `latent` is unknown, or inducing points or a minibatch
            are given or missing against `latent`.

    Example:
        >>> classifier = kpp_models.GPClassification(kpp.kernels.RBF(1.5))
        >>> ill = classifier.fit(jax.random.key(0), x, np.where(y > 0, "ill", "well"))
        >>> sorted(ill.predict(x[:2]))
        ['latent_variance', 'mean', 'probability']

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
