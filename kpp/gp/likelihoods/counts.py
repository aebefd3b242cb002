r"""Likelihoods of counts, whose mean is :math:`e_i \exp(f_i)` or whose number of trials is :math:`e_i`."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from kpp.foundation.validation import as_targets, check_same_rows, is_concrete, refuse_first
from kpp.gp.integrals.expectations import deviation, expected_softplus
from kpp.gp.integrals.links import Derivatives, expected_log_probability, softplus_derivatives
from kpp.gp.likelihoods.base import AbstractPointwiseLikelihood, observed_field
from kpp.kernels import parameter
from kpp.kernels.toolkit import check_positive
from kpp.storage.serialization import data_class
from kpp.typing import AnyArray, Leaf, RngKey

_LARGEST_LOG_RATE = 500.0  # exp overflows in float64 above 709


class AbstractCountLikelihood(AbstractPointwiseLikelihood):
    r"""Counts, each with an exposure e; their mean is :math:`e \exp(f)` unless a subclass says otherwise.

    Law: `draw` and `predict` are for an exposure of 1.
    """

    per_observation: ClassVar[tuple[str, ...]] = ("y", "exposure")

    y: eqx.AbstractVar[Any]
    exposure: eqx.AbstractVar[Any]

    @property
    def support(self) -> Any:
        return constraints.nonnegative_integer

    def __check_init__(self) -> None:
        if isinstance(self.exposure, (jax.Array, np.ndarray, float, int)):
            self._check_exposure(self.exposure, "exposure")

    @property
    def log_exposure(self) -> Any:
        """The logarithm of the exposure, 0 without an exposure."""
        return 0.0 if self.exposure is None else jnp.log(self.exposure)

    def read_targets(self, y: object, name: str = "y") -> Float[Array, " n"]:
        """Read counts, as many as there are exposures."""
        counts = as_targets(y, name=name)
        if np.ndim(self.exposure):
            check_same_rows(counts.shape[0], self.exposure.shape[0], name, "exposure")
        if is_concrete(counts):
            refuse_first(
                counts,
                (counts < 0) | (counts != jnp.round(counts)),
                f"`{name}` must hold counts (integers, at least 0)",
            )
        return counts

    def with_exposure(self, exposure: object, name: str = "exposure") -> "AbstractCountLikelihood":
        """Return the likelihood with the exposures that a user gives, (n,).

        Raises:
            ValueError: If they are not positive numbers.
        """
        known = as_targets(exposure, name=name)
        self._check_exposure(known, name)
        return eqx.tree_at(lambda tree: tree.exposure, self, known, is_leaf=lambda leaf: leaf is None)

    def _check_exposure(self, exposure: Any, name: str) -> None:
        """Raise ValueError unless exposures, one or (n,), are positive numbers."""
        if is_concrete(exposure):
            known = np.atleast_1d(exposure)
            refuse_first(known, ~((known > 0) & np.isfinite(known)), f"`{name}` must be positive and finite")

    def draw_observed(self, rng_key: RngKey, f: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return self.draw(rng_key, f + self.log_exposure)

    def predict(self, mean: Float[AnyArray, " p"], variance: Float[AnyArray, " p"]) -> dict[str, Float[Array, " p"]]:
        """Return the ``response_mean``, the mean count at an exposure of 1."""
        return {"response_mean": jnp.exp(mean + 0.5 * jnp.asarray(variance))}

    def response_mean(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return jnp.exp(mean + self.log_exposure + 0.5 * jnp.asarray(variance))  # the mean of a lognormal variable


@data_class
class PoissonLikelihood(AbstractCountLikelihood):
    r"""Counts, :math:`y_i \sim \mathrm{Poisson}(e_i \exp(f_i))`.

    Args:
        y: The counts, (n,), or None.
        exposure: e, (n,), the size of what is counted over (people, hours, area); None for 1.
    """

    y: Any = observed_field()
    exposure: Any = observed_field("exposure")

    def log_density(self, f: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        log_rate = f + self.log_exposure  # the log rate neither under- nor overflows
        return self.y * log_rate - _rate(log_rate) - gammaln(self.y + 1.0)

    def derivatives(self, f: Float[AnyArray, " n"]) -> Derivatives:
        rate = jnp.exp(jnp.minimum(f + self.log_exposure, _LARGEST_LOG_RATE))
        return Derivatives(self.y - rate, rate, -rate)

    def draw(self, rng_key: RngKey, f: Float[AnyArray, "*p"]) -> Float[Array, "*p"]:
        """Draw counts at an exposure of 1."""
        return _draw_counts(rng_key, jnp.asarray(f))

    def expected_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        log_rate = mean + self.log_exposure
        return self.y * log_rate - self.response_mean(mean, variance) - gammaln(self.y + 1.0)


@data_class
class NegativeBinomialLikelihood(AbstractCountLikelihood):
    r"""Counts with more variance than mean: :math:`\mu_i + \mu_i^2 / r` for the mean :math:`\mu_i = e_i \exp(f_i)`.

    .. math:: \log p(y \mid f) = \log \frac{\Gamma(y + r)}{\Gamma(r)\, y!} + y \log \frac{\mu}{\mu + r} + r \log
        \frac{r}{\mu + r}

    Args:
        y: The counts, (n,), or None.
        concentration: r, positive, a number or a prior; Poisson's law is the limit of large r.
        exposure: e, (n,); None for 1.
    """

    y: Any = observed_field()
    concentration: Leaf = eqx.field(converter=parameter("concentration"), default=1.0)
    exposure: Any = observed_field("exposure")

    def __check_init__(self) -> None:
        check_positive(self.concentration, "concentration")

    def log_density(self, f: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        excess = jax.nn.softplus(f + self.log_exposure - jnp.log(self.concentration))  # log(1 + mu / r)
        return self._log_density(f, excess)

    def derivatives(self, f: Float[AnyArray, " n"]) -> Derivatives:
        total = self.y + self.concentration
        found = softplus_derivatives(f + self.log_exposure - jnp.log(self.concentration))
        return Derivatives(self.y + total * found.gradient, total * found.curvature, total * found.third)

    def draw(self, rng_key: RngKey, f: Float[AnyArray, "*p"]) -> Float[Array, "*p"]:
        """Draw counts at an exposure of 1: Poisson's law with a rate of Gamma's."""
        first, second = jax.random.split(rng_key)
        f = jnp.asarray(f)
        # The numbers themselves underflow for small concentrations.
        gamma = jax.random.loggamma(first, self.concentration, f.shape, f.dtype)
        return _draw_counts(second, f + gamma - jnp.log(self.concentration))

    def expected_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        mean = jnp.asarray(mean)
        excess = expected_softplus(mean + self.log_exposure - jnp.log(self.concentration), variance)
        return self._log_density(mean, excess)

    def _log_density(self, f: AnyArray, excess: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the log probabilities, which are linear in f and in log(1 + mu / r)."""
        y, r = self.y, self.concentration
        ways = gammaln(y + r) - gammaln(r) - gammaln(y + 1.0)
        return ways + y * (f + self.log_exposure - jnp.log(r)) - (y + r) * excess


@data_class
class BinomialLikelihood(AbstractCountLikelihood):
    r"""Numbers of successes, :math:`y_i \sim \mathrm{Binomial}(e_i, \sigma(f_i))`.

    Args:
        y: The numbers of successes, (n,), or None.
        exposure: e, (n,), the numbers of trials; None for 1.
    """

    y: Any = observed_field()
    exposure: Any = observed_field("exposure")

    @property
    def trials(self) -> Any:
        """The numbers of trials."""
        return 1.0 if self.exposure is None else self.exposure

    @property
    def support(self) -> Any:
        return constraints.integer_interval(0, self.trials)

    def read_targets(self, y: object, name: str = "y") -> Float[Array, " n"]:
        """Read numbers of successes, none above its number of trials."""
        counts = super().read_targets(y, name)
        if is_concrete(counts) and is_concrete(self.trials):
            trials = jnp.broadcast_to(self.trials, counts.shape)
            advice = " (1 without it: give `exposure=`, the trials of each row)" if self.exposure is None else ""
            refuse_first(counts, counts > trials, f"`{name}` must not exceed `exposure`, the number of trials{advice}")
        return counts

    def _check_exposure(self, exposure: Any, name: str) -> None:
        super()._check_exposure(exposure, name)
        if is_concrete(exposure):
            known = np.atleast_1d(exposure)
            refuse_first(known, known != np.round(known), f"`{name}` must hold whole numbers of trials")

    def log_density(self, f: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return self._ways + self.y * f - self.trials * jax.nn.softplus(f)

    def derivatives(self, f: Float[AnyArray, " n"]) -> Derivatives:
        n, found = self.trials, softplus_derivatives(f)
        return Derivatives(self.y + n * found.gradient, n * found.curvature, n * found.third)

    def draw(self, rng_key: RngKey, f: Float[AnyArray, "*p"]) -> Float[Array, "*p"]:
        """Draw the success of one trial, 0 or 1."""
        return jax.random.bernoulli(rng_key, jax.nn.sigmoid(f)).astype(jnp.asarray(f).dtype)

    def draw_observed(self, rng_key: RngKey, f: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        f = jnp.asarray(f)
        trials = jnp.broadcast_to(jnp.asarray(self.trials, f.dtype), f.shape)
        return jax.random.binomial(rng_key, trials, jax.nn.sigmoid(f), dtype=f.dtype)

    def predict(self, mean: Float[AnyArray, " p"], variance: Float[AnyArray, " p"]) -> dict[str, Float[Array, " p"]]:
        """Return the ``probability`` of a success."""
        return {"probability": _probability(mean, variance)}

    def response_mean(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return self.trials * _probability(mean, variance)

    def expected_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        mean = jnp.asarray(mean)
        return self._ways + self.y * mean - self.trials * expected_softplus(mean, variance)

    @property
    def _ways(self) -> Array:
        y, n = self.y, self.trials
        return gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(n - y + 1.0)


def _probability(mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
    return jnp.exp(expected_log_probability("logit", jnp.ones_like(mean), mean, deviation(variance) ** 2))


def _rate(log_rate: Array) -> Array:
    """Return exp, linear beyond a cap, so that slopes remain correct."""
    capped = jnp.minimum(log_rate, _LARGEST_LOG_RATE)
    return jnp.exp(capped) * (1.0 + log_rate - capped)


def _draw_counts(rng_key: RngKey, log_rate: Array) -> Array:
    return jax.random.poisson(rng_key, jnp.exp(log_rate)).astype(log_rate.dtype)
