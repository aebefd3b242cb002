r"""Laplace's approximation of the utilities of n items, of which each ranking involves several.

With :math:`f \sim N(0, K)`, the coefficients a of the mode :math:`\hat f = K a` and the negated second derivative W of
the log likelihood there, which is not diagonal,

.. math:: a = \nabla \log p(y \mid \hat f), \qquad
    \log q(y) = \log p(y \mid \hat f) - \tfrac12 a^\top \hat f - \tfrac12 \log\det(I + W K)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int
from numpyro import distributions as dist
from numpyro.distributions import constraints
from scipy.special import ndtri
from scipy.stats import qmc

from kpp import linalg
from kpp.gp import ConditionedGP, GaussianLikelihood
from kpp.gp.toolkit import anneal_from_laplace, newton_mode, prior_factor, relative_change, step_size
from kpp.kernels import AbstractKernel
from kpp.typing import AnyArray, Points, RngKey

_NUM_POINTS = 512  # of quasi-Monte Carlo


class PlackettLuce(eqx.Module):
    r"""The Plackett-Luce law of m rankings of sets of at most L items, given the utilities f of all items.

    .. math:: P(\text{order } s_1, \ldots, s_R \text{ of the set } S) = \prod_{r=1}^R
        \frac{e^{f(s_r)}}{\sum_{s \in S \setminus \{s_1, \ldots, s_{r-1}\}} e^{f(s)}}

    At most the best R are in order. It is the law of the order of the utilities plus independent standard Gumbel noise.
    With R = 1 it is the law of the best item of a set, and with two items the logistic law of a match.
    """

    candidates: Int[Array, "m L"]  # the item numbers of each set, -1 beyond their number
    num_ranked: Int[Array, " m"]  # how many items of each set are in order
    order: Any  # the positions of the best, second-best, ... among the candidates, (m, R), -1 beyond; None if unknown
    num_places: int = eqx.field(static=True)  # R

    def observe(self, order: AnyArray) -> PlackettLuce:
        """Return the law of these orders, (m, R)."""
        return PlackettLuce(self.candidates, self.num_ranked, jnp.asarray(order, int), self.num_places)

    def log_density(self, f: Float[Array, " n"]) -> Float[Array, " m"]:
        """Return the log probability of every ranking, given the utilities of the n items."""
        return self.log_density_of_sets(self.utilities(f))

    def log_density_of_sets(self, utilities: Float[Array, "m L"]) -> Float[Array, " m"]:
        """Return the log probability of every ranking, given the utilities of its own items."""
        logits = self._logits(utilities)
        position = jnp.maximum(self.order, 0)[:, :, None]
        chosen = jnp.take_along_axis(logits, position, axis=2)[:, :, 0] - logsumexp(logits, axis=2)
        return jnp.sum(jnp.where(self.order >= 0, chosen, 0.0), axis=1)

    def gradient(self, f: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the gradient of the sum of the log probabilities."""
        return jax.grad(lambda f: jnp.sum(self.log_density(f)))(f)

    def curvature(self, f: Float[Array, " n"]) -> Float[Array, "n n"]:
        """Return the negated second derivative of the sum of the log probabilities, positive semi-definite."""
        blocks, at = self.curvature_of_sets(self.utilities(f)), self.candidates
        return jnp.zeros((f.shape[0],) * 2, f.dtype).at[at[:, :, None], at[:, None, :]].add(blocks)

    def curvature_of_sets(self, utilities: Float[Array, "m L"]) -> Float[Array, "m L L"]:
        r"""Return the negated second derivatives of the log probabilities with respect to the items of each set.

        They are :math:`\sum_r (\mathrm{diag}(p_r) - p_r p_r^\top)`, p_r being the probabilities of the r-th choice.
        """
        known = (self.order >= 0)[:, :, None]
        chance = jnp.where(known, jax.nn.softmax(self._logits(utilities), axis=2), 0.0)
        diagonal = jax.vmap(jnp.diag)(jnp.sum(chance, axis=1))
        return diagonal - jnp.einsum("mrl,mrk->mlk", chance, chance)

    def draw(self, rng_key: RngKey, f: Float[Array, " n"]) -> Int[Array, "m R"]:
        """Draw the order of every set: the order of its utilities with Gumbel noise."""
        utilities = self.utilities(f)
        noisy = utilities + jax.random.gumbel(rng_key, utilities.shape, utilities.dtype)
        order = jnp.argsort(-jnp.where(self._present, noisy, -jnp.inf), axis=1)[:, : self.num_places]
        return jnp.where(jnp.arange(self.num_places)[None] < self.num_ranked[:, None], order, -1)

    def utilities(self, f: Float[Array, " n"]) -> Float[Array, "m L"]:
        """Return the utilities of the items of each set; those of no item are not to be used."""
        return jnp.where(self._present, f[self.candidates], 0.0)

    @property
    def _present(self) -> Bool[Array, "m L"]:
        return self.candidates >= 0

    def _logits(self, utilities: Float[Array, "m L"]) -> Float[Array, "m R L"]:
        """Return the utilities of the items among which the r-th one is chosen, and -inf for all others."""
        places = jnp.arange(utilities.shape[1])[None, None]
        chosen = (self.order[:, :, None] == places) & (self.order >= 0)[:, :, None]
        taken = jnp.cumsum(chosen, axis=1) - chosen > 0
        # Without a choice all items stay, so that no sum over items is empty.
        free = self._present[:, None, :] & (~taken | (self.order < 0)[:, :, None])
        return jnp.where(free, utilities[:, None, :], -jnp.inf)


class UtilityMode(NamedTuple):
    """The mode K a of the utilities, by the coefficients a, with the curvature W."""

    coefficients: Float[Array, " n"]
    utilities: Float[Array, " n"]
    curvature: Float[Array, "n n"]


def utility_mode(law: PlackettLuce, covariance: Float[Array, "n n"]) -> UtilityMode:
    """Return the mode of the utilities given the rankings, differentiable twice in the covariance.

    The iteration of Newton's method is not differentiated. From its result, as a constant, two more steps are made.
    Their error is of fourth order in a change of the covariance, so that all derivatives up to the third are exact.
    """

    def step(a: Array) -> Array:
        f = covariance @ a
        curvature = law.curvature(f)
        right = curvature @ f + law.gradient(f)
        return jnp.linalg.solve(_system(curvature, covariance), right)

    def guarded(a: Array) -> tuple[Array, Array]:
        direction = step(a) - a
        f, move = covariance @ a, covariance @ direction

        def objective(size: Array) -> Array:
            latent = f + size * move
            return jnp.sum(law.log_density(latent)) - 0.5 * jnp.dot(a + size * direction, latent)

        return a + step_size(objective, a.dtype) * direction, relative_change(move, f)

    start = newton_mode(lambda a: jax.lax.stop_gradient(guarded(a)), jnp.zeros_like(covariance[0]))
    # Steps of Newton's method do not move the mode, and two of them carry its first two derivatives.
    coefficients = step(step(jax.lax.stop_gradient(start)))
    utilities = covariance @ coefficients
    return UtilityMode(coefficients, utilities, law.curvature(utilities))


def log_evidence(law: PlackettLuce, covariance: Float[Array, "n n"], mode: UtilityMode) -> Float[Array, ""]:
    """Return Laplace's approximation of the log marginal likelihood."""
    log_determinant = jnp.linalg.slogdet(_system(mode.curvature, covariance))[1]
    quadratic = jnp.dot(mode.coefficients, mode.utilities)
    return jnp.sum(law.log_density(mode.utilities)) - 0.5 * (quadratic + log_determinant)


def condition_on_rankings(kernel: AbstractKernel, items: Points, law: PlackettLuce) -> ConditionedGP:
    r"""Return the posterior of the utility by Laplace's approximation.

    The data reduce its covariance by :math:`R = (I + W K)^{-1} W = U (I + U^\top K U)^{-1} U^\top`,
    :math:`W = U U^\top`.
    """
    covariance = kernel.gram(items)
    mode = utility_mode(law, covariance)
    values, vectors = jnp.linalg.eigh(mode.curvature)
    root = vectors * jnp.sqrt(jnp.maximum(values, 0.0))[None]  # W is singular: only differences count
    factor = linalg.cholesky(linalg.add_diagonal(root.T @ covariance @ root, 1.0), what="the matrix I + U^T K U")

    def whiten(sections: Array) -> Array:
        return linalg.solve_lower(factor, root.T @ sections)

    return ConditionedGP(kernel, items, mode.coefficients, whiten, GaussianLikelihood(noise_variance=0.0))


def held_out_log_density(
    law: PlackettLuce, utilities: Float[Array, " n"], covariance: Float[Array, "n n"]
) -> Float[Array, " m"]:
    r"""Return the log probability of each ranking given all others, by the Laplace cavity of its items.

    With the posterior covariance :math:`\Sigma` of the items of ranking i, its gradient g and its curvature W, the
    cavity is :math:`N(\hat f - C g, C)` with :math:`C = (I - \Sigma W)^{-1} \Sigma`, :math:`\hat f` being the posterior
    mode. The expectation of the probability is computed by quasi-Monte Carlo with 512 points.
    """
    present, sets = law.candidates >= 0, law.utilities(utilities)
    slopes = jax.grad(lambda sets: jnp.sum(law.log_density_of_sets(sets)))(sets)
    blocks = covariance[law.candidates[:, :, None], law.candidates[:, None, :]]
    blocks = jnp.where(present[:, :, None] & present[:, None, :], blocks, 0.0)
    points = normal_points(sets.shape[1], sets.dtype)

    def one(item: tuple[Array, ...]) -> Array:
        candidates, num_ranked, order, at, slope, block, curvature = item
        # (S^-1 - W)^-1, for a block S that may be singular.
        cavity = jnp.linalg.solve(jnp.eye(len(at), dtype=at.dtype) - block @ curvature, block)
        draws = (at - cavity @ slope)[None] + points @ prior_factor(0.5 * (cavity + cavity.T)).T
        # The same ranking under many utilities: a law of as many rankings.
        same = (jnp.broadcast_to(part, (len(points), *part.shape)) for part in (candidates, num_ranked, order))
        densities = PlackettLuce(next(same), next(same), next(same), law.num_places).log_density_of_sets(draws)
        return jax.scipy.special.logsumexp(densities) - jnp.log(len(points))

    parts = (law.candidates, law.num_ranked, law.order, sets, slopes, blocks, law.curvature_of_sets(sets))
    return jax.lax.map(one, parts)


def normal_points(dimension: int, dtype: Any) -> Float[Array, "k l"]:
    """Return 512 points of quasi-Monte Carlo for a standard normal law."""
    # Scrambled: Sobol's first point is 0, whose quantile is infinite.
    uniform = qmc.Sobol(dimension, scramble=True, seed=0).random(_NUM_POINTS)
    return jnp.asarray(ndtri(uniform), dtype)


class RankingMarginal(dist.Distribution):
    """The orders of m sets of items, whose utilities are integrated out by Laplace's approximation.

    K is the covariance of the utilities of the n items, and the law that of the orders, without them. `log_prob` is the
    approximate log evidence and has first and second derivatives; `sample` is exact. The site of whitened utilities
    that ``kpp.Laplace(importance=True)`` draws has the name `whitened`.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.independent(constraints.integer_greater_than(-2), 2)
    pytree_data_fields = ("covariance_matrix", "law")
    pytree_aux_fields = ("whitened",)

    def __init__(
        self,
        covariance_matrix: Float[AnyArray, "n n"],
        law: PlackettLuce,
        *,
        whitened: str,
        validate_args: bool | None = None,
    ) -> None:
        self.covariance_matrix, self.law, self.whitened = jnp.asarray(covariance_matrix), law, whitened
        super().__init__((), (law.candidates.shape[0], law.num_places), validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw orders of all sets, (*sample_shape, m, R)."""
        first, second = jax.random.split(key)
        root = prior_factor(self.covariance_matrix)
        utilities = jax.random.normal(first, (*sample_shape, root.shape[0]), root.dtype) @ root.T
        return _draw_orders(self.law, second, utilities)

    def log_prob(self, value: AnyArray, intermediates: object = None) -> Array:
        """Return the approximate log evidence of orders, (m, R)."""
        law = self.law.observe(value)
        return log_evidence(law, self.covariance_matrix, utility_mode(law, self.covariance_matrix))

    def draw_latents(self, rng_key: RngKey, value: AnyArray) -> tuple[dict[str, Array], Array]:
        """Draw whitened utilities with the log of an importance weight; see `kpp.gp.toolkit.anneal_from_laplace`."""
        law, covariance = self.law.observe(value), self.covariance_matrix
        mode, root = utility_mode(law, covariance), prior_factor(covariance)
        white, log_weight = anneal_from_laplace(
            rng_key,
            lambda white: jnp.sum(law.log_density(root @ white)),
            root.T @ mode.coefficients,
            linalg.add_diagonal(root.T @ mode.curvature @ root, 1.0),
            log_evidence(law, covariance, mode),
        )
        return {self.whitened: white}, log_weight


class RankingObservations(dist.Distribution):
    """The orders of m sets of items whose utilities are known."""

    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.independent(constraints.integer_greater_than(-2), 1)
    pytree_data_fields = ("loc", "law")

    def __init__(
        self, utilities: Float[AnyArray, " n"], law: PlackettLuce, *, validate_args: bool | None = None
    ) -> None:
        self.loc, self.law = jnp.asarray(utilities), law
        super().__init__(law.candidates.shape[:1], (law.num_places,), validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw orders, (*sample_shape, m, R)."""
        return _draw_orders(self.law, key, jnp.broadcast_to(self.loc, (*sample_shape, *self.loc.shape)))

    def log_prob(self, value: AnyArray, intermediates: object = None) -> Array:
        """Return the log probability of every order, (m,)."""
        return self.law.observe(value).log_density(self.loc)


def _draw_orders(law: PlackettLuce, key: Array, utilities: Float[Array, "*s n"]) -> Int[Array, "*s m r"]:
    draw, sample_shape = law.draw, utilities.shape[:-1]
    for _ in sample_shape:
        draw = jax.vmap(draw)
    return draw(jax.random.split(key, sample_shape) if sample_shape else key, utilities)


def _system(curvature: Float[Array, "n n"], covariance: Float[Array, "n n"]) -> Float[Array, "n n"]:
    return linalg.add_diagonal(curvature @ covariance, 1.0)
