r"""The likelihood of times until an event, of which some are only known to lie in an interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from kpp.foundation.validation import as_array, as_targets, check_same_rows, is_concrete, one_of, refuse_first
from kpp.gp import AbstractPointwiseLikelihood, observed_field
from kpp.kernels import parameter
from kpp.kernels.toolkit import check_positive
from kpp.storage.serialization import data_class
from kpp.typing import AnyArray, Leaf, RngKey

_SMALLEST = 1e-300  # below it a time or a probability is taken as this number, whose logarithm is finite
_LARGEST = 1e300  # for infinite times, since saved models hold finite numbers


class _Law(NamedTuple):
    """A law of z: the logarithms of P(Z > z), P(Z <= z) and the density, draws, and the median."""

    log_survival: Callable[[Array], Array]
    log_probability: Callable[[Array], Array]
    log_density: Callable[[Array], Array]
    draw: Callable[[RngKey, tuple[int, ...]], Array]
    median: float


def _log_difference(gap: Array) -> Array:
    """Return log(1 - exp(-gap)) of a gap that is at least 0."""
    gap = jnp.maximum(gap, _SMALLEST)
    small = jnp.minimum(gap, math.log(2.0))
    large = jnp.maximum(gap, math.log(2.0))
    return jnp.where(gap < math.log(2.0), jnp.log(-jnp.expm1(-small)), jnp.log1p(-jnp.exp(-large)))


def _hazard(z: Array) -> Array:
    return jnp.exp(jnp.minimum(z, 500.0))  # exp overflows in float64 above 709


#: The law of z by the name of the law of the times.
_LAWS = {
    "weibull": _Law(
        lambda z: -_hazard(z),
        lambda z: jnp.where(z < -40.0, z, _log_difference(_hazard(jnp.maximum(z, -40.0)))),
        lambda z: z - _hazard(z),
        lambda key, shape: -jax.random.gumbel(key, shape),
        math.log(math.log(2.0)),
    ),
    "lognormal": _Law(norm.logsf, norm.logcdf, norm.logpdf, jax.random.normal, 0.0),
    "loglogistic": _Law(
        lambda z: jax.nn.log_sigmoid(-z),
        jax.nn.log_sigmoid,
        lambda z: jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z),
        jax.random.logistic,
        0.0,
    ),
}


def _as_upper(value: Any) -> Array | None:
    return None if value is None else jnp.minimum(as_array(value, "upper"), _LARGEST)


@data_class
class FailureTimeLikelihood(AbstractPointwiseLikelihood):
    r"""Times until an event (accelerated failure times), exact or in an interval.

    .. math:: \log T_i = f_i + \sigma Z_i

    The law of Z makes T Weibull with the shape :math:`1 / \sigma`, log-normal or log-logistic. An event at the time
    :math:`y_i` has the density of T there. If it is only known to lie between :math:`y_i` and :math:`u_i` (interval
    censoring), it has the probability :math:`P(y_i < T_i \le u_i)`.

    Args:
        law: "weibull", "lognormal" or "loglogistic".
        scale: :math:`\sigma`, positive, a number or a prior.
        upper: u, (n,): equal to :math:`y_i` for an event at :math:`y_i`, larger for one in the interval, and infinite
            for one after :math:`y_i` (right-censored); :math:`y_i` is 0 for one before :math:`u_i` (left-censored).
            None if all times are exact.
        y: The times, or the lower ends of the intervals, (n,), or None.

    Raises:
        ValueError: If `law` is unknown; with the data, if a time is negative, an exact time is 0, or an upper end is
            smaller than the lower one.

    References:
        Kalbfleisch and Prentice, The statistical analysis of failure time data, 2002, sections 2.2 and 3.2.
    """

    per_observation: ClassVar[tuple[str, ...]] = ("y", "upper")

    law: str = eqx.field(static=True)
    scale: Leaf = eqx.field(converter=parameter("scale"), default=1.0)
    upper: Any = eqx.field(converter=_as_upper, default=None)
    y: Any = observed_field()

    def __check_init__(self) -> None:
        one_of(self.law, "law", tuple(_LAWS))
        check_positive(self.scale, "scale")

    @property
    def support(self) -> Any:
        return constraints.nonnegative

    def read_targets(self, y: object, name: str = "y") -> Float[Array, " n"]:
        """Read the times, as many as there are upper ends."""
        times = as_targets(y, name=name)
        upper = times if self.upper is None else self.upper
        check_same_rows(times.shape[0], upper.shape[0], name, "upper")
        if is_concrete(times):
            refuse_first(times, times < 0, f"`{name}` must hold times, at least 0")
            refuse_first(times, (times == 0) & (upper == 0), f"`{name}` must be positive for an event at that time")
            refuse_first(upper, ~(np.asarray(upper) >= times), f"`upper` must not be smaller than `{name}`")
        return times

    def log_density(self, f: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        law, upper = _LAWS[self.law], self.y if self.upper is None else self.upper
        is_exact, is_open = upper == self.y, upper >= _LARGEST
        log_time = jnp.log(jnp.maximum(self.y, _SMALLEST))
        # an interval of width 0 or without an end is replaced by another one, so that all derivatives are finite
        log_end = jnp.where(is_exact | is_open, log_time + 1.0, jnp.log(jnp.maximum(upper, _SMALLEST)))
        low, high = (log_time - f) / self.scale, (log_end - f) / self.scale
        exact = law.log_density(low) - jnp.log(self.scale) - log_time
        after, before = law.log_survival(low), law.log_probability(high)
        inside = jnp.where(  # from the smaller tail, so that no digits are lost
            low > 0,
            after + _log_difference(after - law.log_survival(high)),
            before + _log_difference(before - law.log_probability(low)),
        )
        return jnp.where(is_exact, exact, jnp.where(is_open, after, inside))

    def draw(self, rng_key: RngKey, f: Float[AnyArray, "*p"]) -> Float[Array, "*p"]:
        """Draw times of events, none of them censored."""
        return jnp.exp(f + self.scale * _LAWS[self.law].draw(rng_key, jnp.shape(f)))

    def survival(self, f: Float[AnyArray, " p"], times: Float[AnyArray, " k"]) -> Float[Array, "p k"]:
        r"""Return :math:`P(T > t)` for p latent values and k times t."""
        z = (jnp.log(jnp.asarray(times))[None, :] - jnp.asarray(f)[:, None]) / self.scale
        return jnp.exp(_LAWS[self.law].log_survival(z))

    def predict(self, mean: Float[AnyArray, " p"], variance: Float[AnyArray, " p"]) -> dict[str, Float[Array, " p"]]:
        """Return the ``median_time``, the median of T at the mean of the latent value."""
        return {"median_time": jnp.exp(mean + self.scale * _LAWS[self.law].median)}
