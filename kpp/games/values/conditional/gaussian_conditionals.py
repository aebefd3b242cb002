"""Observational value functions by sampling: Gaussian conditional distributions, or those of a Gaussian copula."""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Bool, Float

from kpp.foundation.validation import as_points, count
from kpp.functions import RKHSFunction
from kpp.games.players.players import Coalitions, Instances
from kpp.games.values.abstract import AbstractValueFunction
from kpp.games.values.imputation import AbstractImputation, equal_weights
from kpp.games.values.product_games import example_functions
from kpp.linalg import add_diagonal, cho_solve, cholesky
from kpp.runtime.random import standard_normal
from kpp.typing import AnyArray, RngKey

# Added to variances of 1, so that the matrix is not singular if features determine each other.
_RIDGE = 1e-9

# From the points (p, d), the mask of a coalition (d,) and standard normal numbers (r, d), all of mean 0 and variance 1
# over the background, to samples (p, r, d), whose columns of present features have no meaning.
Sampler = Callable[[Float[Array, "p d"], Bool[Array, " d"], Float[Array, "r d"]], Float[Array, "p r d"]]


class _Fields:
    """Further fields of every final class, in a plain class so that type checkers see them."""

    samples_per_point: eqx.AbstractVar[int]
    seed: eqx.AbstractVar[int]


class AbstractSampled(_Fields, AbstractImputation):
    r"""Absent features are sampled given the present ones, by scores of the features that are jointly Gaussian.

    The mean and covariance are those of the background's scores. The random numbers behind the samples are fixed by a
    seed, the same for every coalition and point, so that values are reproducible and linear in the function; their
    means are exactly 0 and their variances 1. The rows of the empty coalition are the background, so that the base
    value is the mean prediction over it.
    """

    def to_scores(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Return the scores of points, by default the points."""
        return x

    def from_scores(self, scores: Float[Array, "*shape d"]) -> Float[Array, "*shape d"]:
        """Return the features of scores, by default the scores."""
        return scores

    def sampler(self, correlation: Float[Array, "d d"]) -> Sampler:
        """Return the function that samples absent features, by default given the present ones, by their correlation."""
        return functools.partial(_conditional_samples, correlation)

    def __check_init__(self) -> None:
        count(self.samples_per_point, "samples_per_point")

    def imputation_weights(self, function: object, x: Instances, coalitions: Coalitions) -> Float[Array, "c p r"]:
        return equal_weights(x, coalitions, self.background.shape[0] * self.samples_per_point)

    def impute(self, function: object, x: Instances, coalitions: Coalitions) -> Float[Array, "c p r d"]:
        # All seeds share one compiled program, which gets the random numbers as an argument.
        same_seed: dict[str, Any] = {"seed": 0}
        return dataclasses.replace(self, **same_seed)._impute(jnp.asarray(x), jnp.asarray(coalitions), self._noise())

    @eqx.filter_jit
    def _impute(
        self, x: Float[Array, "p d"], coalitions: Bool[Array, "c d"], noise: Float[Array, "r d"]
    ) -> Float[Array, "c p r d"]:
        background = jnp.asarray(self.background)
        fitted = self.to_scores(background)
        mean, scale = _moments(fitted)
        standard = (fitted - mean) / scale
        sample = self.sampler(add_diagonal(standard.T @ standard / fitted.shape[0], _RIDGE))
        explained = (self.to_scores(x) - mean) / scale
        repeated = jnp.tile(background, (self.samples_per_point, 1))

        def of_coalition(mask: Array) -> Array:
            samples = sample(explained, mask, noise)
            rows = jnp.where(mask[None, None], x[:, None], self.from_scores(mean[None] + scale[None] * samples))
            return jnp.where(jnp.any(mask), rows, repeated[None])  # without features the background itself

        return jax.lax.map(of_coalition, coalitions)

    def control_variates(self) -> Float[Array, "r q"]:
        """Return the random numbers and their squares, whose means are 0 and 1."""
        return _with_squares(self._noise())

    def _noise(self) -> Float[Array, "r d"]:
        num_background, num_features = self.background.shape
        shape = (num_background * self.samples_per_point, num_features)
        return _standardized(standard_normal(jax.random.key(self.seed), shape, jnp.asarray(self.background).dtype))


class GaussianConditional(AbstractSampled):
    r"""Absent features are sampled from a Gaussian, fitted to the background, given the present ones.

    .. math:: v(S) = \frac1r \sum_{i=1}^r f(x_S, \xi_i), \qquad \xi_i \sim
        N\bigl(\mu_{S^c} + \Sigma_{S^c S} \Sigma_{SS}^{-1} (x_S - \mu_S),\
        \Sigma_{S^c S^c} - \Sigma_{S^c S} \Sigma_{SS}^{-1} \Sigma_{S S^c}\bigr)

    Args:
        background: The background points, (m, d), whose mean and covariance the Gaussian takes.
        samples_per_point: How many samples per background point; r is m times this number.
        seed: The seed of the random numbers.

    References:
        Aas, Jullum and Loland, Explaining individual predictions when features are dependent, 2021, section 3.1.
    """

    background: Float[AnyArray, "m d"] = eqx.field(converter=lambda value: as_points(value, "background"))
    samples_per_point: int = eqx.field(static=True, default=1)
    seed: int = eqx.field(static=True, default=0)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractValueFunction, RKHSFunction, Any]]:
        function, x = next(example_functions(rng_key))
        yield cls(function.points[:4] + 0.1), function, x


class CopulaConditional(AbstractSampled):
    r"""Absent features are sampled from a Gaussian copula with the background's margins, given the present ones.

    The scores of a feature are :math:`\Phi^{-1}(\hat F_j(x_j))`, from its rank in the background. Samples are
    transformed back by the quantiles of the background, so that only values of the background occur.

    Args:
        background: The background points, (m, d).
        samples_per_point: How many samples per background point; r is m times this number.
        seed: The seed of the random numbers.

    References:
        Aas, Jullum and Loland, Explaining individual predictions when features are dependent, 2021, section 3.2.
    """

    background: Float[AnyArray, "m d"] = eqx.field(converter=lambda value: as_points(value, "background"))
    samples_per_point: int = eqx.field(static=True, default=1)
    seed: int = eqx.field(static=True, default=0)

    def to_scores(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return copula_scores(jnp.asarray(self.background), x)  # equal values share the mean of their ranks

    def from_scores(self, scores: Float[Array, "*shape d"]) -> Float[Array, "*shape d"]:
        return copula_quantiles(jnp.asarray(self.background), scores)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractValueFunction, RKHSFunction, Any]]:
        function, x = list(example_functions(rng_key))[2]
        yield cls(function.points[:4] + 0.1, samples_per_point=2), function, x


def copula_scores(background: Float[Array, "m d"], x: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """Return the normal quantiles of the ranks in a background; equal values share the mean of their ranks."""
    ordered = jnp.sort(background, axis=0)
    below = jax.vmap(functools.partial(jnp.searchsorted, side="left"), 1, 1)(ordered, x)
    upto = jax.vmap(functools.partial(jnp.searchsorted, side="right"), 1, 1)(ordered, x)
    # Over m + 1, so no score is infinite.
    return ndtri((below + upto + 1).astype(x.dtype) / (2 * (ordered.shape[0] + 1)))


def copula_quantiles(background: Float[Array, "m d"], scores: Float[Array, "*shape d"]) -> Float[Array, "*shape d"]:
    """Return a background's quantiles at normal scores."""
    ordered = jnp.sort(background, axis=0)
    num_points, num_features = ordered.shape
    ranks = jnp.clip((ndtr(scores) * num_points).astype(int), 0, num_points - 1)  # beyond the ranks: the extreme values
    flat = jnp.take_along_axis(ordered, ranks.reshape(-1, num_features), axis=0)
    return flat.reshape(scores.shape)


def _moments(values: Float[Array, "n d"]) -> tuple[Float[Array, "1 d"], Float[Array, "1 d"]]:
    """Return means and standard deviations, 1 for constants."""
    scale = jnp.std(values, axis=0, keepdims=True)
    return jnp.mean(values, axis=0, keepdims=True), jnp.where(scale > 0, scale, 1.0)


@jax.jit
def _standardized(draws: Float[Array, "r d"]) -> Float[Array, "r d"]:
    mean, scale = _moments(draws)
    return (draws - mean) / scale


@jax.jit
def _with_squares(noise: Float[Array, "r d"]) -> Float[Array, "r q"]:
    return jnp.concatenate([noise, noise**2], axis=1)


def _conditional_samples(
    correlation: Float[Array, "d d"], x: Float[Array, "p d"], mask: Bool[Array, " d"], noise: Float[Array, "r d"]
) -> Float[Array, "p r d"]:
    """Sample the absent features of a Gaussian of mean 0; the columns of present features have no meaning."""
    present = mask[:, None] & mask[None, :]
    # Absent features get an identity, so that all coalitions have matrices of one shape.
    known = cholesky(add_diagonal(jnp.where(present, correlation, 0.0), ~mask), what="the correlation matrix")
    cross = jnp.where(mask[:, None], correlation, 0.0)
    gain = cho_solve(known, cross)
    mean = jnp.where(mask[None], x, 0.0) @ gain
    absent = ~mask[:, None] & ~mask[None, :]
    rest = add_diagonal(jnp.where(absent, correlation - cross.T @ gain, 0.0), mask)
    root = cholesky(rest, what="the conditional correlation matrix")
    return mean[:, None] + (noise @ root.T)[None]
