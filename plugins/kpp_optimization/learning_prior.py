r"""A prior from other data that learns with the queries: weighted draws of hyperparameters, and a discrepancy.

A fit to other data may be certain of a wrong place, because its hyperparameters are wrong or because the other data
tell about something else. Here every query also updates the weights of the draws of the hyperparameters, and of a
discrepancy between the effect and the objective.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from kpp.foundation.validation import as_finite_array, at_least, one_of, positive
from kpp.inference.toolkit import pseudo_evidence as pseudo_evidence
from kpp.typing import AnyArray
from kpp_optimization.belief import Draws, MixtureBelief
from kpp_optimization.objective_priors import AbstractObjectivePrior

_LIGHTEST = -25.0  # draws whose weight is below exp(-25) of the largest before any query are left out


def _as_vector(name: str, check: Any) -> Any:
    """Return a converter of a field to a vector of at least one number."""

    def convert(value: object) -> Array:
        vector = jnp.atleast_1d(check(as_finite_array(value, name), name))
        if vector.ndim != 1 or vector.size == 0:
            raise ValueError(f"`{name}` must be a sequence of at least one number, got shape {vector.shape}")
        return vector

    return convert


def _as_log_weights(value: object) -> Array | None:
    return None if value is None else as_finite_array(value, "log_weights")


def feature_ranges(points: Float[AnyArray, "p d"]) -> Float[np.ndarray, "1 d"]:
    """Return the range of the candidates in each column, 1 where it is zero."""
    widths = np.ptp(np.asarray(points), axis=0, keepdims=True)
    return np.where(widths > 0.0, widths, 1.0)


class Discrepancy(eqx.Module):
    r"""The difference between an objective and the effect that other data tell about: a mixture of Gaussian processes.

    .. math:: \delta \sim GP\bigl(0,\; s^2 (k_\ell + b^2)\bigr), \qquad
        k_\ell(x, x') = \exp\Bigl(-\frac{1}{2 \ell^2} \sum_k \frac{(x_k - x'_k)^2}{r_k^2}\Bigr)

    with :math:`r_k` the range of the candidates in column k. All pairs of a scale and a lengthscale have the same prior
    weight, so that scales on a logarithmic grid have the scale-free prior. A small scale trusts the other data; under a
    large one the objective is learned from the queries alone.

    Args:
        scales: s, at least 0, (q,), in units of the objective.
        lengthscales: :math:`\ell`, (r,), as shares of the range of the candidates.
        offset: b, the standard deviation of a constant difference, in units of s.

    Raises:
        ValueError: If a number is out of range.

    References:
        Kennedy and O'Hagan, Bayesian calibration of computer models, 2001, section 4.1.
    """

    scales: Float[Array, " q"] = eqx.field(
        converter=_as_vector("scales", lambda value, name: at_least(value, name, 0.0))
    )
    lengthscales: Float[Array, " r"] = eqx.field(
        converter=_as_vector("lengthscales", positive), default=(0.05, 0.1, 0.2, 0.4, 0.8)
    )
    offset: float = 1.0

    def __check_init__(self) -> None:
        at_least(self.offset, "offset", 0.0, infinity_allowed=False)

    def covariances(self, points: Float[AnyArray, "p d"]) -> Float[np.ndarray, "l p p"]:
        """Return the covariance at p points for each pair of a scale and a lengthscale, which varies faster."""
        table = np.asarray(points)
        scaled = table / feature_ranges(table)
        squares = cdist(scaled, scaled, "sqeuclidean")  # once for all lengthscales
        grams = np.exp(-0.5 * squares / np.square(np.asarray(self.lengthscales))[:, None, None]) + self.offset**2
        return (np.square(np.asarray(self.scales))[:, None, None, None] * grams).reshape(-1, *squares.shape)


class LearningPrior(AbstractObjectivePrior):
    r"""A prior from other data whose hyperparameters, discrepancy and noise are learned with the queries.

    .. math:: y_i = g(x_i) + \delta(x_i) + \epsilon_i, \qquad g \mid \theta_j \sim GP(m_j, c_j), \qquad
        \epsilon_i \sim N(0, \tau_v \sigma^2)

    The draws :math:`\theta_j` come from one or more priors with weights that their data give them. The belief is the
    mixture over draws, discrepancies and factors of the noise, each weighted by its prior weight times the evidence of
    all queries. The expected improvement under a mixture is the average over its components, and it is exact.

    A prior that uses no data, such as ``KernelPrior(Constant(variance), mean)``, among the priors lets the search go on
    from the queries alone where the other data turn out to mislead: then the discrepancy is the whole objective.

    Args:
        priors: One or more priors; `FitPrior` gives its draws one by one. A `RefittedPrior` keeps its first
            hyperparameters here.
        discrepancy: The discrepancy between the effect and the objective.
        log_weights: The logarithm of each prior's weight, for example its log prior probability plus the
            `pseudo_evidence` of its fit; equal by default. They need not be normalized.
        noise_factors: :math:`\tau_v`, factors of the noise variance given to the search, with equal prior weights; one
            factor of 1 if this variance is known.
        estimate: "mixture", or "mode" for the single component of the highest weight, which is the joint mode given all
            data. The mode ignores the uncertainty about hyperparameters.

    Raises:
        ValueError: If there is no prior, the number of weights differs, or a number is out of range.
    """

    priors: tuple[AbstractObjectivePrior, ...] = eqx.field(converter=tuple)
    discrepancy: Discrepancy
    log_weights: Float[Array, " q"] | None = eqx.field(converter=_as_log_weights, default=None)
    noise_factors: Float[Array, " v"] = eqx.field(converter=_as_vector("noise_factors", positive), default=(1.0,))
    estimate: str = eqx.field(static=True, default="mixture")

    def __check_init__(self) -> None:
        one_of(self.estimate, "estimate", ("mixture", "mode"))
        if not self.priors:
            raise ValueError("`priors` must hold at least one prior, got none")
        if self.log_weights is not None and self.log_weights.shape != (len(self.priors),):
            raise ValueError(
                f"`log_weights` must have one number for each of the {len(self.priors)} priors, got shape "
                f"{self.log_weights.shape}"
            )

    def moments(self, points: Float[AnyArray, "p d"]) -> tuple[np.ndarray, np.ndarray]:
        mean, covariance = self.draws(points).moments()
        return mean, covariance + self.discrepancy.covariances(points).mean(axis=0)

    def draws(self, points: Float[AnyArray, "p d"]) -> Draws:
        """Return the draws of all priors, without the discrepancy; see `AbstractObjectivePrior.draws`."""
        parts = [prior.draws(points) for prior in self.priors]
        weights = np.zeros(len(parts)) if self.log_weights is None else np.asarray(self.log_weights)
        logs = np.concatenate(
            [part.log_weights - logsumexp(part.log_weights) + own for part, own in zip(parts, weights, strict=True)]
        )
        kept = logs >= logs.max() + _LIGHTEST  # every component takes (2 + n) p numbers
        means, covariances = (np.concatenate([part[k] for part in parts])[kept] for k in (1, 2))
        return Draws(logs[kept], means, covariances)

    def believe(self, points: Float[AnyArray, "p d"]) -> MixtureBelief:
        found, discrepancies = self.draws(points), self.discrepancy.covariances(points)
        if not (found.covariances.any() or discrepancies.any()):
            raise ValueError("`discrepancy` must have a positive scale, because all priors have the covariance zero")
        factors = np.asarray(self.noise_factors)
        logs = np.broadcast_to(found.log_weights[:, None, None], (len(found.means), len(discrepancies), len(factors)))
        return MixtureBelief.create(
            logs, found.means, found.covariances, discrepancies, factors, only_mode=self.estimate == "mode"
        )
