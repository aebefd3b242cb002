"""Labels of two classes, and ordered labels."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from kpp.foundation.validation import as_binary_labels, as_targets, is_concrete, one_of, refuse_first
from kpp.gp.integrals.expectations import deviation, expected_log_ndtr, expected_softplus
from kpp.gp.integrals.links import (
    LINKS,
    Derivatives,
    Link,
    derivatives,
    expected_log_probability,
    log_likelihood,
    probability,
    softplus_derivatives,
)
from kpp.gp.likelihoods.base import AbstractPointwiseLikelihood, observed_field
from kpp.kernels import parameter
from kpp.kernels.toolkit import check_positive
from kpp.priors import leaf_shape
from kpp.storage.serialization import data_class
from kpp.typing import AnyArray, Leaf, RngKey


@data_class
class BernoulliLikelihood(AbstractPointwiseLikelihood):
    """Labels 0 and 1.

    Args:
        y: Labels in {0, 1}, of shape (n,), or None.
        link: "logit" or "probit".
    """

    y: Any = observed_field()
    link: Link = eqx.field(static=True, default="logit")

    def __check_init__(self) -> None:
        one_of(self.link, "link", LINKS)

    @property
    def support(self) -> Any:
        return constraints.boolean

    def read_targets(self, y: object, name: str = "y") -> Float[Array, " n"]:
        """Read labels in {0, 1}, both of which must occur."""
        return as_binary_labels(y, name=name)

    def log_density(self, f: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return log_likelihood(self.link, self.y, f)

    def derivatives(self, f: Float[AnyArray, " n"]) -> Derivatives:
        return derivatives(self.link, self.y, f)

    def draw(self, rng_key: RngKey, f: Float[AnyArray, "*p"]) -> Float[Array, "*p"]:
        return jax.random.bernoulli(rng_key, probability(self.link, f)).astype(jnp.asarray(f).dtype)

    def predict(self, mean: Float[AnyArray, " p"], variance: Float[AnyArray, " p"]) -> dict[str, Float[Array, " p"]]:
        """Return the ``probability`` of label 1."""
        return {"probability": self.response_mean(mean, variance)}

    def response_mean(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return jnp.exp(expected_log_probability(self.link, jnp.ones_like(mean), mean, variance))

    def marginal_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return expected_log_probability(self.link, self.y, mean, variance)

    def expected_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        if self.link == "logit":
            return self.y * jnp.asarray(mean) - expected_softplus(jnp.asarray(mean), jnp.asarray(variance))
        return expected_log_ndtr((2.0 * self.y - 1.0) * mean, variance)


@data_class
class OrdinalLikelihood(AbstractPointwiseLikelihood):
    r"""Levels 0, ..., K, in an order, K at least 2: :math:`P(y_i \le k \mid f_i) = \sigma(c_k - f_i)`.

    Args:
        y: The levels, (n,), or None.
        first_cutpoint: :math:`c_0`, a number or a prior.
        gaps: :math:`c_k - c_{k-1}` for k = 1, ..., K - 1, positive: (K - 1,) numbers, or a prior for them, such as
            ``LogNormal(0, 1).expand([K - 1])``.
    """

    y: Any = observed_field()
    first_cutpoint: Leaf = eqx.field(converter=parameter("first_cutpoint"), default=0.0)
    gaps: Leaf = eqx.field(converter=parameter("gaps"), default=(1.0,))

    def __check_init__(self) -> None:
        shape = leaf_shape(self.gaps)
        if len(shape) != 1 or not shape[0]:
            raise ValueError(
                f"`gaps` must have shape (K - 1,), one number between two cutpoints, got shape {shape}; for two levels "
                "use BernoulliLikelihood"
            )
        check_positive(self.gaps, "gaps", infinity_allowed=False)

    @property
    def cutpoints(self) -> Float[Array, " K"]:
        """c, (K,), ascending."""
        steps = jnp.concatenate([jnp.zeros_like(self.gaps[:1]), self.gaps])
        return self.first_cutpoint + jnp.cumsum(steps)

    @property
    def num_levels(self) -> int:
        """The number of levels, K + 1."""
        return leaf_shape(self.gaps)[0] + 2

    @property
    def support(self) -> Any:
        return constraints.integer_interval(0, self.num_levels - 1)

    def read_targets(self, y: object, name: str = "y") -> Float[Array, " n"]:
        levels = as_targets(y, name=name)
        if is_concrete(levels):
            wrong = (levels < 0) | (levels >= self.num_levels) | (levels != jnp.round(levels))
            refuse_first(levels, wrong, f"`{name}` must hold levels, whole numbers from 0 to {self.num_levels - 1}")
        return levels

    def log_density(self, f: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        r"""Return the log probability of every level, :math:`\log(\sigma(b) - \sigma(a))` without a difference."""
        lower, upper = self._ends()
        return self._log_width - jax.nn.softplus(f - upper) - jax.nn.softplus(lower - f)

    def derivatives(self, f: Float[AnyArray, " n"]) -> Derivatives:
        lower, upper = self._ends()
        above, below = softplus_derivatives(f - upper), softplus_derivatives(lower - f)
        gradient, third = above.gradient - below.gradient, above.third - below.third
        return Derivatives(gradient, above.curvature + below.curvature, third)

    def draw(self, rng_key: RngKey, f: Float[AnyArray, "*p"]) -> Float[Array, "*p"]:
        f = jnp.asarray(f)
        noisy = f + jax.random.logistic(rng_key, f.shape, f.dtype)  # P(y <= k) = sigma(c_k - f)
        return jnp.searchsorted(self.cutpoints, noisy).astype(f.dtype)

    def predict(self, mean: Float[AnyArray, " p"], variance: Float[AnyArray, " p"]) -> dict[str, Float[Array, "p *k"]]:
        """Return the ``level_probability``, (p, K + 1), and the ``response_mean``, the mean level."""
        levels = self._level_probabilities(mean, variance)
        return {"level_probability": levels, "response_mean": self.response_mean(mean, variance)}

    def response_mean(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        levels = self._level_probabilities(mean, variance)
        return levels @ jnp.arange(self.num_levels, dtype=levels.dtype)

    def expected_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        lower, upper = self._ends()  # sums of softpluses, as in `log_density`: no integral of the log of a difference
        return self._log_width - _expected_softplus(mean - upper, variance) - _expected_softplus(lower - mean, variance)

    @property
    def _log_width(self) -> Float[Array, " n"]:
        lower, upper = self._ends()
        return jnp.log(-jnp.expm1(lower - upper))  # log(1 - exp(a - b)), which is 0 at the infinite ends

    def _ends(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Return the cutpoints below and above each observed level, infinite at the ends."""
        cutpoints, level = self.cutpoints, jnp.asarray(self.y).astype(int)
        infinity = jnp.full_like(cutpoints[:1], jnp.inf)
        ends = jnp.concatenate([-infinity, cutpoints, infinity])
        return ends[level], ends[level + 1]

    def _level_probabilities(self, mean: AnyArray, variance: AnyArray) -> Float[Array, "n levels"]:
        def at_most(cutpoint: Array) -> Array:
            return jnp.exp(
                expected_log_probability("logit", jnp.ones_like(mean), cutpoint - mean, deviation(variance) ** 2)
            )

        inner = jax.vmap(at_most, out_axes=1)(self.cutpoints)
        none, all_ = jnp.zeros((inner.shape[0], 1), inner.dtype), jnp.ones((inner.shape[0], 1), inner.dtype)
        return jnp.diff(jnp.concatenate([none, inner, all_], axis=1), axis=1)


def _expected_softplus(mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
    """Return the expectation, 0 for a mean of minus infinity."""
    finite = jnp.isfinite(mean)
    return jnp.where(finite, expected_softplus(jnp.where(finite, mean, 0.0), variance), 0.0)
