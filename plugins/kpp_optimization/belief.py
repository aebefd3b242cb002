"""A Gaussian belief about an objective at finitely many points, and its update by one observation."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float

__all__ = ["Belief"]

NUGGET = 1e-10  # relative to the mean prior variance and added to the noise: rounding may make a zero variance negative


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

    def observe(self, index: int, value: float, noise_variance: float = 0.0) -> Belief:
        r"""Return the belief given one more observation.

        Args:
            index: i, the position of the observed point.
            value: y, in the units of the objective.
            noise_variance: :math:`\sigma^2` of the observation, in squared units of the objective.

        Returns:
            The belief given the observation.
        """
        column = self.covariance[:, index]
        gain = column / (self.covariance[index, index] + noise_variance + self.nugget)
        mean = self.mean + gain * (value - self.mean[index])
        return Belief(mean, self.covariance - np.outer(gain, column), self.nugget)
