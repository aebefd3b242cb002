"""Beliefs about an objective at finitely many points, Gaussian ones and mixtures.

They are updated by observations, and give the expected improvement of a further query on the best one.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import erfcx, logsumexp, ndtr, ndtri

from kpp.foundation.validation import as_finite_array
from kpp.foundation.validation import probability as check_probability

NUGGET = 1e-10  # relative to the mean prior variance and added to the noise: rounding may make a zero variance negative
_BISECTIONS = 50  # of the bracket of a quantile, until its relative width is 1e-15
_NEGLIGIBLE = 1e-12  # components of a smaller weight are left out of sums over components

Interval = tuple[Float[np.ndarray, " p"], Float[np.ndarray, " p"]]


@dataclasses.dataclass(frozen=True)
class Belief:
    r"""A Gaussian vector: an objective at p points.

    Observations are added one at a time, so that no matrix is factorized and nothing is compiled again as their number
    grows:

    .. math::

        \mu \leftarrow \mu + \frac{c_i}{C_{ii} + \sigma^2} (y - \mu_i), \qquad
        C \leftarrow C - \frac{c_i c_i^\top}{C_{ii} + \sigma^2}, \qquad c_i = C_{\cdot i}

    Args:
        mean: :math:`\mu`, (p,).
        covariance: C, positive semi-definite, (p, p).
        nugget: A variance that is added to the noise of every observation, against rounding errors.

    References:
        Rasmussen and Williams (2006), equation A.6, for one observation.
    """

    mean: Float[np.ndarray, " p"]
    covariance: Float[np.ndarray, "p p"]
    nugget: float

    @classmethod
    def create(cls, mean: Float[np.ndarray, " p"], covariance: Float[np.ndarray, "p p"]) -> Belief:
        """Return a belief without observations; its nugget is 1e-10 of the mean variance."""
        return cls(mean, covariance, NUGGET * float(np.mean(np.diagonal(covariance))))

    @property
    def standard_deviation(self) -> Float[np.ndarray, " p"]:
        """The standard deviation at each point."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0))

    @property
    def effective_draws(self) -> float:
        """The effective number of hyperparameter draws, 1."""
        return 1.0

    def observe(self, index: int, value: float, noise_variance: float = 0.0) -> Belief:
        r"""Return the belief given one more observation.

        Args:
            index: i, the position of the observed point.
            value: y, in the units of the objective.
            noise_variance: :math:`\sigma^2` of the observation, in squared units of the objective.
        """
        column = self.covariance[:, index]
        gain = column / (self.covariance[index, index] + noise_variance + self.nugget)  # R&W equation A.6
        mean = self.mean + gain * (value - self.mean[index])
        return Belief(mean, self.covariance - np.outer(gain, column), self.nugget)

    def improvement(self, best: float, sign: float = 1.0) -> Float[np.ndarray, " p"]:
        r"""Return the expected improvement :math:`E \max(b - s f, 0)` at each point.

        Args:
            best: b, the best value so far, times the sign.
            sign: s, 1 to minimize and -1 to maximize.
        """
        return expected_improvement(sign * self.mean, self.standard_deviation, best)

    def cdf(self, values: Float[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
        """Return the probability at each point that the objective is at most a value."""
        return _normal_cdf(values, self.mean, self.standard_deviation)

    def interval(self, probability: float) -> Interval:
        """Return the bounds of the central interval with this probability at each point."""
        half = ndtri(0.5 + 0.5 * check_probability(probability, "probability")) * self.standard_deviation
        return self.mean - half, self.mean + half


class Draws(NamedTuple):
    """The moments of a prior for each draw of its hyperparameters.

    Args:
        log_weights: The logarithms of the draws' weights, which need not be normalized, (j,).
        means: (j, p).
        covariances: (j, p, p).
    """

    log_weights: Float[np.ndarray, " j"]
    means: Float[np.ndarray, "j p"]
    covariances: Float[np.ndarray, "j p p"]

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean (p,) and covariance (p, p) of the mixture of the draws."""
        weights = np.exp(self.log_weights - logsumexp(self.log_weights))
        apart = self.means - weights @ self.means
        covariance = np.einsum("j,jpq->pq", weights, self.covariances) + (apart.T * weights) @ apart  # total covariance
        return weights @ self.means, covariance


@dataclasses.dataclass(frozen=True)
class MixtureBelief:
    r"""A mixture of Gaussian vectors, whose weights are learned from the observations.

    A component stands for a draw j of a prior's hyperparameters, with mean :math:`m_j` and covariance :math:`C_j`, a
    covariance :math:`D_l` of the discrepancy, and a factor :math:`\tau_v` of the noise:

    .. math:: f \mid j, l \sim N(m_j,\; C_j + D_l), \qquad y \mid f, v \sim N(f_i,\; \tau_v \sigma^2)

    One observation changes the moments of each component as it changes a `Belief`, and multiplies the weight of each
    component by the density that it predicted for the observation. The weights are therefore prior weights times the
    evidence of all observations, and the belief is exact. Of the covariances only the columns of the observed points
    are computed, so that a component takes (2 + n) p numbers.

    Args:
        covariances: :math:`C_j`, (j, p, p).
        discrepancies: :math:`D_l`, (l, p, p).
        noise_factors: :math:`\tau_v`, (v,).
        log_weights: The logarithms of the normalized weights, (j, l, v).
        means: The mean of each component, (j, l, v, p).
        variances: The variance of each component, (j, l, v, p).
        roots: For each observation the vector whose outer product it subtracts from a covariance, (n, j, l, v, p).
        nuggets: A variance that is added to the noise of every observation, (j, l, v).
        only_mode: Whether the belief is the component of the largest weight alone, which is the joint mode of
            hyperparameters, discrepancy and noise.
    """

    covariances: Float[np.ndarray, "j p p"]
    discrepancies: Float[np.ndarray, "l p p"]
    noise_factors: Float[np.ndarray, " v"]
    log_weights: Float[np.ndarray, "j l v"]
    means: Float[np.ndarray, "j l v p"]
    variances: Float[np.ndarray, "j l v p"]
    roots: Float[np.ndarray, "n j l v p"]
    nuggets: Float[np.ndarray, "j l v"]
    only_mode: bool = False

    @classmethod
    def create(
        cls,
        log_weights: Float[np.ndarray, "j l v"],
        means: Float[np.ndarray, "j p"],
        covariances: Float[np.ndarray, "j p p"],
        discrepancies: Float[np.ndarray, "l p p"],
        noise_factors: Float[np.ndarray, " v"],
        *,
        only_mode: bool = False,
    ) -> MixtureBelief:
        """Return a belief without observations, with weights that need not be normalized."""
        shape = (*log_weights.shape, means.shape[-1])
        first, second = np.einsum("jpp->jp", covariances), np.einsum("lpp->lp", discrepancies)
        variances = np.broadcast_to(first[:, None, None] + second[None, :, None], shape)
        own = variances.mean(axis=-1)
        return cls(
            covariances,
            discrepancies,
            noise_factors,
            log_weights - logsumexp(log_weights),
            np.broadcast_to(means[:, None, None], shape),
            variances,
            np.zeros((0, *shape)),
            NUGGET * np.maximum(own, NUGGET * own.max()),
            only_mode,
        )

    @classmethod
    def of_draws(cls, draws: Draws) -> MixtureBelief:
        """Return the belief of draws that hold the discrepancy already."""
        nothing = np.zeros((1, *draws.covariances.shape[1:]))
        return cls.create(draws.log_weights[:, None, None], draws.means, draws.covariances, nothing, np.ones(1))

    @property
    def weights(self) -> Float[np.ndarray, "j l v"]:
        """The weights of the components; their sum is 1."""
        if self.only_mode:
            return (np.arange(self.log_weights.size) == self.log_weights.argmax()).reshape(self.log_weights.shape) + 0.0
        return np.exp(self.log_weights)

    @property
    def mean(self) -> Float[np.ndarray, " p"]:
        """The mean at each point."""
        return np.einsum("jlv,jlvp->p", self.weights, self.means)

    @property
    def standard_deviation(self) -> Float[np.ndarray, " p"]:
        """The standard deviation at each point."""
        squares = np.maximum(self.variances, 0.0) + (self.means - self.mean) ** 2  # law of total variance
        return np.sqrt(np.einsum("jlv,jlvp->p", self.weights, squares))

    @property
    def effective_draws(self) -> float:
        r"""The effective number of hyperparameter draws, :math:`1 / \sum_j w_j^2`."""
        return float(1.0 / np.sum(np.exp(self.log_weights).sum(axis=(1, 2)) ** 2))

    def observe(self, index: int, value: float, noise_variance: float = 0.0) -> MixtureBelief:
        """Return the belief given one more observation; see `Belief.observe`."""
        column = self.covariances[:, None, None, index] + self.discrepancies[None, :, None, index]
        column = column - np.einsum("njlvp,njlv->jlvp", self.roots, self.roots[..., index])  # p numbers, not p^2
        variance = np.maximum(column[..., index], 0.0) + noise_variance * self.noise_factors + self.nuggets
        error = (value - self.means[..., index]) / np.sqrt(variance)
        limit = np.sqrt(np.maximum(self.variances, 0.0))  # a rounded covariance may be slightly indefinite
        root = np.clip(column / np.sqrt(variance)[..., None], -limit, limit)
        log_weights = self.log_weights - 0.5 * (error**2 + np.log(variance))  # times the predicted density of y
        return dataclasses.replace(
            self,
            log_weights=log_weights - logsumexp(log_weights),
            means=self.means + root * error[..., None],
            variances=self.variances - root**2,  # the diagonal of C - c c^T / (C_ii + sigma^2)
            roots=np.concatenate([self.roots, root[None]]),
        )

    def improvement(self, best: float, sign: float = 1.0) -> Float[np.ndarray, " p"]:
        """Return the expected improvement at each point, the average of the components'; see `Belief.improvement`."""
        weights, means, sds = self._components()
        found = expected_improvement((sign * means).ravel(), sds.ravel(), best)
        return weights @ found.reshape(means.shape)

    def cdf(self, values: Float[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
        """Return the probability at each point that the objective is at most a value."""
        weights, means, sds = self._components()
        return weights @ _normal_cdf(values, means, sds)

    def interval(self, probability: float) -> Interval:
        """Return the bounds of the central interval with this probability at each point, by bisection."""
        tail = 0.5 - 0.5 * check_probability(probability, "probability")
        return self._quantile(tail), self._quantile(1.0 - tail)

    def _quantile(self, level: float) -> Float[np.ndarray, " p"]:
        weights, means, sds = self._components()
        quantiles = means + ndtri(level) * sds
        low, high = quantiles.min(axis=0), quantiles.max(axis=0)  # a mixture's quantile lies between its components'
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            below = self.cdf(middle) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return 0.5 * (low + high)

    def _components(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the weights (c,), means and standard deviations (c, p) of the components that have a weight."""
        weights = self.weights
        kept = weights > _NEGLIGIBLE
        return weights[kept] / weights[kept].sum(), self.means[kept], np.sqrt(np.maximum(self.variances[kept], 0.0))


def expected_improvement(mean: ArrayLike, standard_deviation: ArrayLike, best: float) -> Float[np.ndarray, " p"]:
    r"""Return the expected improvement of a normal variable below a number.

    .. math:: E \max(b - f, 0) = \sigma \bigl[ u \Phi(u) + \varphi(u) \bigr], \qquad u = (b - \mu)/\sigma

    Below u = 0 the two terms cancel; there :math:`\varphi(u) [1 + u \sqrt{\pi/2}\, \mathrm{erfcx}(-u/\sqrt2)]` keeps
    relative accuracy far into the tail, so that even candidates with a tiny improvement can be ranked. To maximize,
    pass the negatives of mean and best.

    Args:
        mean: :math:`\mu`, (p,), in the units of the objective.
        standard_deviation: :math:`\sigma`, at least 0, (p,).
        best: b, the lowest value so far.

    Returns:
        The expected improvements, at least 0, (p,).

    Raises:
        ValueError: If a value is not finite, the shapes differ, or a standard deviation is negative.

    References:
        Jones, Schonlau and Welch, Efficient global optimization of expensive black-box functions, 1998, equation 15.
    """
    mean = np.asarray(as_finite_array(mean, "mean"))
    sd = np.asarray(as_finite_array(standard_deviation, "standard_deviation"))
    if mean.shape != sd.shape:
        raise ValueError(f"`mean` and `standard_deviation` must have one shape, got {mean.shape} and {sd.shape}")
    if (sd < 0.0).any():
        raise ValueError(f"`standard_deviation` must be at least 0, got {sd.min():g}")
    gain = float(as_finite_array(best, "best")) - mean
    with np.errstate(over="ignore"):  # for a tiny standard deviation; the density is 0 beyond 40 standard deviations
        u = np.clip(gain / np.where(sd > 0.0, sd, 1.0), -40.0, None)
    density = np.exp(-0.5 * np.minimum(u, 40.0) ** 2) / np.sqrt(2.0 * np.pi)  # phi(u)
    # Erfcx is a scaled tail: the tail itself underflows far below the best.
    below = density * np.maximum(1.0 + u * np.sqrt(np.pi / 2.0) * erfcx(np.maximum(-u, 0.0) / np.sqrt(2.0)), 0.0)
    certain = np.maximum(gain, 0.0)
    return np.where(sd > 0.0, np.where(u < 0.0, sd * below, certain * ndtr(u) + sd * density), certain)


def _normal_cdf(values: np.ndarray, means: np.ndarray, sds: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # infinity, where the standard deviation is 0, is right
        return ndtr((values - means) / np.maximum(sds, np.finfo(float).tiny))
