"""Mechanisms whose function of the parents has a Gaussian-process prior and is integrated out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp import linalg
from kpp.gp import AbstractPointwiseLikelihood, GaussianLikelihood, GaussianProcessMarginal, LaplaceMarginal, condition
from kpp.gp.toolkit import PriorMean, check_kernel_fits, check_mean_fits, evaluate_mean, mean_field
from kpp.kernels import AbstractKernel, resolve_features
from kpp_models.mechanisms.mechanism import AbstractMechanism, Causes, Training, leaf_by_name, likelihood_field


class GPMechanism(AbstractMechanism):
    r"""A Gaussian process on the parents of a variable, with hidden common causes as linear terms.

    .. math:: y_i \sim p(y_i \mid f_i), \qquad f_i = g(x_i) + \sum_k l_k\, u_{ik}, \qquad g \sim GP(m, k)

    The function g is integrated out: exactly with Gaussian noise, by Laplace's approximation with any other likelihood.
    All rows together are therefore one site, a vector. Given `Training` rows, the law at new rows is the posterior
    predictive law, in which g is one function for all rows. Time is cubic in the number of rows.

    Args:
        kernel: k, a kernel of the parents, in the order of the graph; ``RBF(prior).on("x")`` selects some by name. Its
            parameters may be priors, with the sites ``y.kernel.lengthscale``.
        likelihood: p, Gaussian or log-concave; its parameters may be priors.
        mean: m, in units of f: a number, a prior, or a function of the parents, such as `kpp.gp.LinearMean`.
        loadings: l; as for `LinearMechanism`.

    Raises:
        ValueError: If the likelihood is not log-concave.
    """

    needs_training: ClassVar[bool] = True

    kernel: AbstractKernel  # type: ignore[misc]  # mypy takes the abstract fields for fields with defaults
    likelihood: AbstractPointwiseLikelihood = likelihood_field()
    mean: Any = mean_field(default_factory=lambda: dist.Normal(0.0, 1.0))
    loadings: Any = None

    def __check_init__(self) -> None:
        if not self.likelihood.log_concave:
            raise ValueError(f"`likelihood` must be log-concave, got {type(self.likelihood).__name__}")

    def resolve(self, node: str, parents: tuple[str, ...], loadings: Mapping[str, dist.Distribution]) -> GPMechanism:
        name = f"mechanisms[{node!r}].kernel"
        if not parents:
            raise ValueError(f"`mechanisms` must hold a LinearMechanism for {node!r}, which has no parents")
        kernel = resolve_features(self.kernel, parents)
        points = jnp.zeros((2, len(parents)))
        check_kernel_fits(kernel, points, name, "the parents")
        check_mean_fits(self.mean, points)
        given = loadings if self.loadings is None else self.loadings
        return dataclasses.replace(self, kernel=kernel, loadings=leaf_by_name(given, tuple(loadings), "loadings"))

    def law(self, inputs: Causes, training: Training | None = None) -> dist.Distribution:
        """Return the law of dependent rows; see `AbstractMechanism.law`."""
        mean, covariance = self._moments(inputs, training)
        if isinstance(self.likelihood, GaussianLikelihood):
            return GaussianProcessMarginal(mean, covariance, self.likelihood.noise_variance)
        return LaplaceMarginal(mean, covariance, self.likelihood)

    def latent(self, inputs: Causes, white: Float[Array, " n"], training: Training | None = None) -> Float[Array, " n"]:
        """Draw the function from its posterior, jointly at all rows; see `AbstractMechanism.latent`."""
        mean, covariance = self._moments(inputs, training)
        scale = jnp.mean(self._kernel(inputs).diagonal(inputs.points))
        nugget = linalg.max_relative_jitter(covariance.dtype) * scale  # the covariance is singular at repeated rows
        return mean + linalg.cholesky(linalg.add_diagonal(covariance, nugget), what="the predictive covariance") @ white

    def _kernel(self, inputs: Causes) -> AbstractKernel:
        return self.kernel.on(tuple(range(len(inputs.parents)))) if inputs.hidden else self.kernel

    def _moments(self, inputs: Causes, training: Training | None) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
        kernel, points = self._kernel(inputs), inputs.points
        mean = _Center(self.mean, [self.loadings[name] for name in inputs.hidden], len(inputs.parents))
        if training is None:
            return mean(points), kernel.gram(points)
        process = condition(kernel, training.inputs.points, self.likelihood.observe(training.values), mean)
        latent = process.moments(points, covariance=True)
        assert latent.covariance is not None  # it was asked for
        return latent.mean, latent.covariance


class _Center(eqx.Module):
    """The prior mean as a function of the parents and of the hidden causes, which follow them among the columns."""

    mean: PriorMean
    loadings: list[Array]
    num_parents: int = eqx.field(static=True)

    def __call__(self, points: Float[Array, "n d"]) -> Float[Array, " n"]:
        center = jnp.broadcast_to(evaluate_mean(self.mean, points[:, : self.num_parents]), points.shape[:1])
        hidden = points[:, self.num_parents :]
        return center + hidden @ jnp.stack(self.loadings) if self.loadings else center
