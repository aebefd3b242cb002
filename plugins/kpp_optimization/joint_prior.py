r"""A prior whose hyperparameters are inferred again after every query, from the other data and all queries together."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro import handlers
from scipy.stats import multivariate_normal

import kpp
from kpp import linalg
from kpp.foundation.validation import at_least, count
from kpp.inference import AbstractInference, Posterior
from kpp.kernels import RBF
from kpp.typing import AnyArray, Leaf
from kpp_optimization.belief import Draws, MixtureBelief
from kpp_optimization.learning_prior import feature_ranges
from kpp_optimization.objective_priors import AbstractObjectivePrior

# Added to the noise, relative to the mean variance of the queries: without noise, the evidence of near queries would be
# too rough for a search by its gradient.
_NUGGET = 1e-6


class _Queries(NamedTuple):
    """The queries so far, as NumPy arrays of length n: positions of candidates, values; and the noise's variance."""

    positions: np.ndarray
    values: np.ndarray
    noise_variance: float


_NONE = _Queries(np.zeros(0, int), np.zeros(0), 0.0)


class _JointModel(eqx.Module):
    """The NumPyro model of the other data and the queries together."""

    model: Any
    scale: Leaf
    lengthscale: Leaf
    offset: float

    def numpyro_model(
        self,
        other: dict[str, Any],
        points: Float[Array, "n d"],
        widths: Float[Array, "1 d"],
        values: Float[Array, " n"],
        noise_variance: Float[Array, ""],
        num_queries: Float[Array, ""],
    ) -> None:
        """Run the model of the other data, and observe the queries; rows from `num_queries` on are padding."""
        with handlers.trace() as sites:
            self.model.numpyro_model(**other)
        latent = {name: site["value"] for name, site in sites.items() if not site.get("is_observed", True)}
        discrepancy = kpp.sample("discrepancy", {"scale": self.scale, "lengthscale": self.lengthscale})
        latent |= {f"discrepancy.{name}": jnp.asarray(value) for name, value in discrepancy.items()}
        mean, covariance = self.moments(latent, other, points, widths)
        real = jnp.arange(len(values)) < num_queries
        nugget = _NUGGET * jnp.sum(jnp.where(real, jnp.diagonal(covariance), 0.0)) / jnp.maximum(num_queries, 1.0)
        covariance = linalg.add_diagonal(covariance, noise_variance + nugget)
        covariance = jnp.where(real[:, None] & real[None, :], covariance, jnp.eye(len(values)))  # padding: N(0, 1)
        factor = linalg.cholesky(covariance, what="the covariance matrix of the queries")
        law = dist.MultivariateNormal(jnp.where(real, mean, 0.0), scale_tril=factor)
        numpyro.sample("queries", law, obs=jnp.where(real, values, 0.0))

    def moments(
        self, sample: dict[str, Array], other: dict[str, Any], points: Float[Array, "p d"], widths: Float[Array, "1 d"]
    ) -> tuple[Float[Array, " p"], Float[Array, "p p"]]:
        """Return the moments of effect plus discrepancy at p points, under one draw of all sites."""
        found = self.model.predictive(sample, other, points, covariance=True)
        scale = jnp.asarray(sample.get("discrepancy.scale", self.scale))
        lengthscale = sample.get("discrepancy.lengthscale", self.lengthscale)
        gram = RBF(lengthscale).gram(points / widths) + self.offset**2
        return found["mean"], found["latent_covariance"] + scale**2 * gram


@eqx.filter_jit
def _moments_of_draws(
    model: _JointModel, draws: dict[str, Array], other: dict[str, Any], points: Array, widths: Array
) -> tuple[Float[Array, "j p"], Float[Array, "j p p"]]:
    if not draws:  # nothing is inferred: one draw without sites
        return jax.tree.map(lambda part: part[None], model.moments(draws, other, points, widths))
    return jax.lax.map(lambda sample: model.moments(sample, other, points, widths), draws)


class JointPrior(AbstractObjectivePrior):
    r"""A fit to other data whose hyperparameters, and those of a discrepancy, are inferred again after every query.

    .. math:: p(\theta, s, \ell \mid D, y) \propto p(\theta)\, p(D \mid \theta)\, p(s)\, p(\ell)\,
        N\bigl(y \mid m_\theta(X),\; c_\theta(X, X) + s^2 (k_\ell(X, X) + b^2) + \sigma^2 I\bigr)

    D are the data of the fit, y the results of all queries at the points X, :math:`m_\theta` and :math:`c_\theta` the
    posterior moments of the effect given D, and :math:`k_\ell` the kernel of `Discrepancy`. With `kpp.MAP` the belief
    is the Gaussian process at the joint mode, found by the gradient; with `kpp.Laplace` it is a mixture over draws with
    importance weights, with `kpp.NUTS` one over draws of equal weight. `LearningPrior` keeps its draws
    instead and updates their weights, which needs no new search for a mode.

    A program is compiled once for all queries: they are padded to `max_queries`.

    Args:
        fit: A `kpp.Fit` of a model whose ``predictive`` has ``mean`` and ``latent_covariance``, such as
            `kpp_models.BayesIMP`, in the units of the objective. Its own draws are not used.
        scale: s, in units of the objective: a positive number or a prior.
        lengthscale: :math:`\ell`, as a share of the range of the candidates: a positive number or a prior.
        offset: b, the standard deviation of a constant difference, in units of s.
        inference: How the hyperparameters are inferred.
        max_queries: The largest number of queries.

    Raises:
        ValueError: If a number is out of range.

    References:
        Kennedy and O'Hagan, Bayesian calibration of computer models, 2001, section 4.1.
    """

    fit: Any
    scale: Leaf
    lengthscale: Leaf = dist.LogNormal(np.log(0.2), 0.7)
    offset: float = 1.0
    inference: AbstractInference = kpp.MAP(progress=False)
    max_queries: int = eqx.field(static=True, default=30)
    queries: _Queries = _NONE

    def __check_init__(self) -> None:
        at_least(self.offset, "offset", 0.0, infinity_allowed=False)
        count(self.max_queries, "max_queries")

    def moments(self, points: Float[AnyArray, "p d"]) -> tuple[np.ndarray, np.ndarray]:
        return self.draws(points).moments()

    def draws(self, points: Float[AnyArray, "p d"]) -> Draws:
        """Return the draws of all hyperparameters, with the discrepancy; see `AbstractObjectivePrior.draws`.

        Their weights and moments are those before the queries, which the search observes afterwards.
        """
        table, widths = jnp.asarray(points), jnp.asarray(feature_ranges(points))
        found = self._infer(table, widths)
        flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in found.samples.items()}
        moments = _moments_of_draws(self._model, flat, self.fit.data, table, widths)
        means, covariances = (np.asarray(part) for part in moments)
        return Draws(_log_weights(found) - self._evidence(means, covariances), means, covariances)  # queries count once

    def believe(self, points: Float[AnyArray, "p d"]) -> MixtureBelief:
        return MixtureBelief.of_draws(self.draws(points))

    def given(
        self, points: Float[AnyArray, "p d"], index: np.ndarray, values: np.ndarray, noise_variance: float
    ) -> JointPrior:
        """Return the prior that infers from these queries, too; see `AbstractObjectivePrior.given`.

        Raises:
            ValueError: If there are more than `max_queries` queries.
        """
        count(len(values), "len(values)", most=self.max_queries, most_is="`max_queries`")
        return dataclasses.replace(self, queries=_Queries(index, values, noise_variance))

    @property
    def _model(self) -> _JointModel:
        return _JointModel(self.fit.model, self.scale, self.lengthscale, self.offset)

    def _infer(self, points: Float[Array, "p d"], widths: Float[Array, "1 d"]) -> Posterior:
        index, values, noise_variance = self.queries
        padding = (0, self.max_queries - len(values))
        data = {
            "other": self.fit.data,
            "points": points[np.pad(index, padding)],
            "widths": widths,
            "values": jnp.asarray(np.pad(values, padding)),
            "noise_variance": jnp.asarray(float(noise_variance)),
            "num_queries": jnp.asarray(float(len(values))),
        }
        key = jax.random.key(len(values))
        return self.inference.run(key, self._model.numpyro_model, data)

    def _evidence(self, means: Float[np.ndarray, "j p"], covariances: Float[np.ndarray, "j p p"]) -> np.ndarray:
        """Return the log density of the queries under each draw."""
        index, values, noise_variance = self.queries
        if len(values) == 0:
            return np.zeros(len(means))
        found = []
        for mean, whole in zip(means, covariances, strict=True):
            matrix = whole[np.ix_(index, index)]
            matrix = matrix + (noise_variance + _NUGGET * np.mean(np.diagonal(matrix))) * np.eye(len(values))
            found.append(multivariate_normal.logpdf(values, mean[index], matrix))
        return np.array(found)


def _log_weights(posterior: Posterior) -> np.ndarray:
    """Return the logarithm of the importance weight of each draw."""
    stats = posterior.sample_stats
    if "log_q" not in stats:
        return np.zeros(math.prod(np.shape(next(iter(posterior.samples.values()), np.zeros((1, 1))))[:2]))
    return np.ravel(stats["lp"]) - np.ravel(stats["log_q"])
