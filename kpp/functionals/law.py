"""The law of linear functionals of a Gaussian process, and its intervals."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float
from scipy.special import ndtr

from kpp.foundation.arguments import guard_exports
from kpp.foundation.validation import count
from kpp.foundation.validation import probability as check_probability
from kpp.linalg.toolkit import symmetric_root
from kpp.runtime.random import numpy_generator
from kpp.typing import Numbers, RngKey

# Halvings of the range of a quantile: it is exact to rounding after these.
_HALVINGS = 60


class FunctionalLaw(eqx.Module):
    """The joint law of q linear functionals: Gaussian given the hyperparameters, a mixture over their draws.

    Args:
        mean: The means given the hyperparameters, (*batch_shape, q).
        covariance: The covariances from the uncertainty of the function, (*batch_shape, q, q).
        names: The names of the numbers; None if they have none.

    Example:
        >>> law = posterior.of(kpp.functionals.Values(x[:1]))
        >>> law.interval(0.9).round(2)
        array([[-0.01],
               [ 0.2 ]])
    """

    mean: Float[Array, "*batch q"]
    covariance: Float[Array, "*batch q q"]
    names: tuple[str, ...] | None = eqx.field(static=True, default=None)

    @property
    def variance(self) -> Float[Array, "*batch q"]:
        """The variances given the hyperparameters, (*batch_shape, q), at least 0."""
        return jnp.maximum(jnp.diagonal(self.covariance, axis1=-2, axis2=-1), 0.0)

    def probability_greater(self, threshold: Numbers = 0.0) -> Float[np.ndarray, " q"]:
        """Return the posterior probabilities that the numbers are greater than thresholds, over all draws.

        Args:
            threshold: A number, or one for each of the q numbers.
        """
        mean, sd = self._moments()
        return 1.0 - _distribution(mean, sd, np.asarray(threshold, dtype=float))

    def interval(self, probability: float = 0.9) -> Float[np.ndarray, "2 q"]:
        """Return the bounds of the interval of equal tails of each number, over all draws.

        Args:
            probability: The probability of the interval.

        Returns:
            The lower and the upper bounds, (2, q): quantiles of the mixture, without sampling.
        """
        tail = (1 - check_probability(probability, "probability")) / 2
        mean, sd = self._moments()
        return np.stack([_quantile(mean, sd, level) for level in (tail, 1 - tail)])

    def band(self, rng_key: RngKey, probability: float = 0.9, *, num_samples: int = 4000) -> Float[np.ndarray, "2 q"]:
        r"""Return bounds that hold all q numbers at once with a probability.

        .. math:: \bar m_i \pm c\, \bar s_i, \qquad c \text{ the quantile of } \max_i |L_i f - \bar m_i| / \bar s_i

        The means and standard deviations are those over all draws; c is estimated from joint samples.

        Args:
            rng_key: A JAX random key.
            probability: The probability.
            num_samples: The number of joint samples.

        Returns:
            The lower and the upper bounds, (2, q).
        """
        check_probability(probability, "probability")
        size = int(np.prod(self.mean.shape[:-1], dtype=int))
        draws = self.sample(rng_key, -(-count(num_samples, "num_samples") // size))
        draws = draws.reshape(-1, draws.shape[-1])
        mean, sd = self._moments()
        center = mean.mean(axis=0)
        spread = np.sqrt((sd**2).mean(axis=0) + mean.var(axis=0))
        known = spread > 0
        largest = (abs(draws - center)[:, known] / spread[known]).max(axis=1, initial=0.0)
        return center + np.outer([-1, 1], np.quantile(largest, probability) * spread)

    def sample(self, rng_key: RngKey, num_samples: int = 1) -> Float[np.ndarray, "*batch num q"]:
        """Draw the numbers jointly, for each draw of the hyperparameters.

        Args:
            rng_key: A JAX random key.
            num_samples: How many samples are drawn under each.

        Returns:
            The samples, (*batch_shape, num_samples, q).
        """
        mean, root = np.asarray(self.mean), symmetric_root(np.asarray(self.covariance))
        shape = (*mean.shape[:-1], count(num_samples, "num_samples"), mean.shape[-1])
        noise = numpy_generator(rng_key).standard_normal(shape)
        return mean[..., None, :] + noise @ root

    def to_dataset(self, rng_key: RngKey) -> xr.Dataset:
        """Return a data set of ``mean`` and ``covariance`` given the hyperparameters, and one sample ``draws`` of each.

        Args:
            rng_key: A JAX random key.

        Returns:
            Variables with dims (chain, draw, functional[, functional_other]), which ArviZ takes.
        """
        lead = self.mean.shape[:-1]
        names = list(self.names or range(self.mean.shape[-1]))
        dims = ("chain", "draw", "functional")
        shape = (lead[0] if len(lead) > 1 else 1, -1, len(names))
        variables = {
            "draws": (dims, self.sample(rng_key)[..., 0, :].reshape(shape)),
            "mean": (dims, np.asarray(self.mean).reshape(shape)),
            "covariance": ((*dims, "functional_other"), np.asarray(self.covariance).reshape(*shape, len(names))),
        }
        return xr.Dataset(variables, coords={"functional": names, "functional_other": names})

    def _moments(self) -> tuple[Float[np.ndarray, "s q"], Float[np.ndarray, "s q"]]:
        size = self.mean.shape[-1]
        return np.asarray(self.mean).reshape(-1, size), np.sqrt(np.asarray(self.variance)).reshape(-1, size)


def _distribution(mean: np.ndarray, sd: np.ndarray, at: np.ndarray) -> Float[np.ndarray, " q"]:
    """Return the distribution function of the mixture; a number without variance has a step."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = (at - mean) / sd
    return np.where(sd > 0, ndtr(scores), at >= mean).mean(axis=0)


def _quantile(mean: np.ndarray, sd: np.ndarray, level: float) -> Float[np.ndarray, " q"]:
    """Return the quantiles of the mixture by bisection."""
    low, high = (mean - 40 * sd).min(axis=0), (mean + 40 * sd).max(axis=0)  # the tail beyond underflows in float64
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = _distribution(mean, sd, middle) < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


guard_exports(globals())
