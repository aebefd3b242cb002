r"""Gaussian processes of observations that depend on several latent functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.data.tables import Schema
from kpp.foundation.validation import as_finite_array, one_of
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.gp import CoregionalLikelihood, HeteroscedasticLikelihood, SoftmaxLikelihood, replace_priors
from kpp.gp.toolkit import (
    FUNCTION_VALUES,
    INDUCING,
    LATENT_SITES,
    WHITENED,
    AbstractMultiLatentLikelihood,
    example_points,
    moments_in_blocks,
)
from kpp.inference import AbstractModel, Data
from kpp.inference.toolkit import Sample
from kpp.kernels import RBF, AbstractKernel, parameter
from kpp.kernels.toolkit import check_positive
from kpp.priors import is_prior, leaf_shape, substitute
from kpp.typing import Leaf, Points, RngKey
from kpp_models.tables.inducing import AbstractInducing, check_minibatch
from kpp_models.tables.numpyro_functions import MULTI_LATENTS, LatentFunctions, multi_latent_gp


class MultiLatentGP(AbstractInducing, AbstractModel):
    r"""Gaussian processes of several classes, of several outputs, or of numbers with noise of varying size.

    .. math:: y_i \sim p(y_i \mid f_1(x_i), \ldots, f_L(x_i)), \qquad f_l \sim GP(m_l, s_l^2 k) \text{ independently}

    `kpp.gp` has the likelihoods `SoftmaxLikelihood` for labels of several classes, `CoregionalLikelihood` for several
    outputs with missing entries, and `HeteroscedasticLikelihood` for noise whose variance is a function; another one is
    a subclass of `kpp.gp.toolkit.AbstractMultiLatentLikelihood`. Their parameters may be priors.

    With ``latent="sample"`` the inference samples the whitened latent values, and nothing is approximated; with
    ``latent="inducing"``, for many rows, the values at w inducing points are sampled or learned, and the rest is
    integrated out in a lower bound of the evidence; `kpp.SVI` may take a minibatch of the rows in each step.

    `predict` gives the ``mean`` and ``latent_variance`` of each latent function, and what the likelihood adds: the
    ``class_probability``, or ``output_mean`` and ``output_variance``, or the ``noise_variance``. `function` has the
    classes or outputs as outputs (with noise of varying size, the latent functions). Given a draw they have one law,
    `posterior_draw`, so that explanations have intervals, and `kpp.Fit.of` the covariances between outputs.

    Args:
        kernel: k, with numbers or priors as leaves; all latent functions share it.
        likelihood: p(y | f), without observations.
        mean: m, a number or (L,) numbers, or a prior.
        scale: s, positive, a number or (L,) numbers, or a prior.
        latent: "sample" or "inducing".
        num_inducing, inducing_points, learn_inducing, seed: As for `GPRegression`.
        minibatch: The number of rows in each step of `kpp.SVI`, with "inducing"; all by default.

    Raises:
        TypeError: If `likelihood` is not a likelihood of several latent values.
        ValueError: If `latent` is unknown, `mean` or `scale` has a wrong shape, `scale` is not positive, or inducing
            points or a minibatch are given or missing against `latent`.

    References:
        Rasmussen and Williams (2006), section 3.5; Hensman, Matthews, Filippone and Ghahramani, MCMC for variationally
        sparse Gaussian processes, 2015.
    """

    kernel: AbstractKernel
    likelihood: AbstractMultiLatentLikelihood
    mean: Leaf = eqx.field(converter=parameter("mean"), default=0.0)
    scale: Leaf = eqx.field(converter=parameter("scale"), default=1.0)
    latent: str = eqx.field(static=True, default="sample")
    minibatch: int | None = eqx.field(static=True, default=None, kw_only=True)

    latent_sites: ClassVar[tuple[str, ...]] = LATENT_SITES

    def __check_init__(self) -> None:
        one_of(self.latent, "latent", MULTI_LATENTS)
        if not is_prior(self.mean):
            as_finite_array(self.mean, "mean")
        check_positive(self.scale, "scale", infinity_allowed=False)
        check_minibatch(self.minibatch, self.latent)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[MultiLatentGP, Array, Array]]:
        x, y = example_points(rng_key)
        prior = dist.LogNormal(0.0, 0.5)
        classes = jnp.asarray(jnp.digitize(y, jnp.quantile(y, jnp.array([0.3, 0.6]))), y.dtype)
        yield cls(RBF(prior), SoftmaxLikelihood(), latent="inducing", num_inducing=5, minibatch=None), x, classes
        yield cls(RBF(prior.expand([2])), HeteroscedasticLikelihood(), mean=dist.Normal(0.0, 1.0)), x, y
        mixing = CoregionalLikelihood(dist.Normal(0.0, 1.0).expand([3, 2]), noise_variance=prior)
        yield cls(RBF(prior), mixing, latent="inducing", num_inducing=5), x, jnp.stack([y, y**2, jnp.cos(y)], axis=1)

    def prepare(self, x: object, y: object) -> tuple[MultiLatentGP, dict[str, Any], Schema]:
        model, data, schema = self.read_and_place(x, y, lambda y, name: self.likelihood.read_targets(y, name)[1])
        likelihood, _ = self.likelihood.read_targets(y)
        for name in ("mean", "scale"):
            shape, number = leaf_shape(getattr(self, name)), likelihood.num_latents
            if shape not in ((), (number,)):
                raise ValueError(f"`{name}` must be one number or have shape ({number},), got shape {shape}")
        return dataclasses.replace(model, likelihood=likelihood), data, schema

    def numpyro_model(self, x: Float[Array, "n d"], y: Float[Array, "n *k"] | None = None) -> None:
        """The NumPyro model: `multi_latent_gp` with these fields."""
        multi_latent_gp(
            x, y, self.kernel, self.likelihood, self.mean, self.scale, self.latent, self.inducing_points, self.minibatch
        )

    def log_likelihood(self, sample: Sample, data: Data) -> dict[str, Array]:
        """Return the log likelihood of every row given the latent values, or given those at the inducing points."""
        model, functions = self._at(sample, data)
        likelihood = model.likelihood.observe(data["y"])
        if self.latent == "sample":
            return {"y": likelihood.log_density(functions.at_points())}
        return {"y": likelihood.marginal_log_density(*moments_in_blocks(functions.moments, data["x"]))}

    def predictive(self, sample: Sample, data: Data, x: Points, *, covariance: bool = False) -> dict[str, Array]:
        """Return moments of all latent functions and the quantities of the likelihood; see `AbstractModel.predictive`.

        Raises:
            ValueError: If `covariance` is requested, which is not available.
        """
        if covariance:
            raise ValueError(
                "`covariance` must be False for MultiLatentGP, whose functions have no joint covariance here"
            )
        model, functions = self._at(sample, data)
        mean, variance = moments_in_blocks(functions.moments, jnp.asarray(x))
        return {"mean": mean, "latent_variance": variance, **model.likelihood.predict(mean, variance)}

    def draw_predictive(self, rng_key: RngKey, sample: Sample, data: Data, x: Points) -> Array:
        first, second = jax.random.split(rng_key)
        model, functions = self._at(sample, data)
        return model.likelihood.draw(second, functions.draw(first, jnp.asarray(x)))

    def replicate(self, rng_key: RngKey, sample: Sample, data: Data) -> dict[str, Array]:
        """Return one draw of new observations at the training points; see `AbstractModel.replicate`.

        What inducing points do not explain is drawn independently.
        """
        first, second = jax.random.split(rng_key)
        model, functions = self._at(sample, data)
        if self.latent == "sample":
            return {"y": model.likelihood.draw_observed(second, functions.at_points())}
        mean, variance = moments_in_blocks(functions.moments, data["x"])
        values = mean + jnp.sqrt(variance) * jax.random.normal(first, mean.shape, mean.dtype)
        return {"y": model.likelihood.draw_observed(second, values)}

    def latent_values(self, sample: Sample, data: Data) -> dict[str, Array]:
        return {FUNCTION_VALUES: self._at(sample, data)[1].at_points()} if self.latent == "sample" else {}

    def function_draw(self, sample: Sample, data: Data) -> RKHSFunction:
        return self.posterior_draw(sample, data).mean

    def posterior_draw(self, sample: Sample, data: Data) -> GPPosterior:
        """Return the posterior of all outputs; its covariances are those of `predictive`, between outputs, too."""
        model, functions = self._at(sample, data)
        return functions.posterior(model.likelihood.mixing_matrix)

    @property
    def has_function_posterior(self) -> bool:
        return False

    @property
    def has_posterior_of_outputs(self) -> bool:
        return True

    def predictive_dims(self) -> dict[str, tuple[str, ...]]:
        return {
            "mean": ("latent",),
            "latent_variance": ("latent",),
            "y": self.likelihood.observation_dims,
            **self.likelihood.predictive_dims,
        }

    def coordinates(self) -> dict[str, Sequence[Any]]:
        """Return the names of classes or outputs."""
        return self.likelihood.coordinates()

    def site_dims(self, data: Data) -> dict[str, tuple[str, ...]]:
        return {
            **dict.fromkeys((WHITENED, INDUCING), ("coordinate", "latent")),
            FUNCTION_VALUES: ("instance", "latent"),
            "y": ("instance", *self.likelihood.observation_dims),
            **super().site_dims(data),
        }

    def _at(self, sample: Sample, data: Data) -> tuple[MultiLatentGP, LatentFunctions]:
        """Return this model with the values of one draw in place of its priors, and its latent functions."""
        model = replace_priors(self, lambda name, value: substitute(name, value, sample))
        points = data["x"] if model.inducing_points is None else model.inducing_points
        white = sample[WHITENED if model.inducing_points is None else INDUCING]
        return model, LatentFunctions(model.kernel, points, white, model.mean, model.scale)
