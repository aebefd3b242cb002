"""The value function "preferential-context": what features of the context are worth for a preference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kpp import RKHSFunction
from kpp.batching import sum_arrays
from kpp.games import AbstractValueFunction, Observational, as_coalitions
from kpp.kernels import RBF, AbstractKernel, Contextual, GeneralizedPreferential, Oriented, orient, parameter
from kpp.typing import AnyArray, Leaf, RngKey
from kpp.validation import as_points, check_same_rows, warn_if_float32
from kpp_pref_shap.comparisons import Comparison, check_preference, comparisons, split_points
from kpp_pref_shap.item_game import as_pairs, check_finite, coalitions_at_once
from kpp_pref_shap.match_table import MatchTable
from kpp_pref_shap.sections import absent_weights, check_conditional, game_of_references, restricted_sections
from kpp_pref_shap.skew_forms import SkewForm, number_rows

__all__ = ["PreferentialContext"]


class PreferentialContext(AbstractValueFunction):
    r"""Absent features of the context are averaged over reference contexts; the two items stay as they are.

    .. math::

        v(S) = \sum_b w_b(u)\; g_{(u_S, z_{b, S^c})}(x, x'), \qquad
        w(u) = (K_{Z_S Z_S} + n \lambda I)^{-1} k(Z_S, u_S)

    or, interventional, :math:`w = 1/n`. The values change their sign where the items are exchanged. That of no feature
    is the mean preference over the contexts, which differs from duel to duel: `base_at` knows it, and `base` only where
    all have the same matches. "raw" end points keep the formula, which shrinks towards 0.

    Points are tuples of pairs (p, 2, d) and contexts (p, c). With `matches` the preference is averaged over them,
    :math:`\frac1m \sum_j v_{u, x_j, x'_j}(S)`, and points are contexts (p, c).

    Args:
        contexts: The reference contexts z, (n, c).
        regularization: :math:`\lambda`, positive.
        conditional: "observational" or "interventional".
        kernel: The kernel k of the conditional mean embeddings, by default that of the contexts, if it is a product
            kernel up to a constant, else as for `kpp.games.Observational`.
        end_points: "exact" or "raw".
        solver: "cholesky", or "cg" for preconditioned conjugate gradients.
        max_steps: The largest number of steps of conjugate gradients.
        matches: Pairs of items (m, 2, d) to average over, or None.
        batch_size: How many coalitions are worked on at once; by default what fits.

    References:
        Chau, Towards trustworthy machine learning with kernels, 2023, proposition 7.3.4, the first factor of which is
        that of the present features and the others' matrix that of the reference contexts.
    """

    contexts: Float[AnyArray, "n c"] = eqx.field(converter=lambda value: as_points(value, "contexts"))
    regularization: Leaf = eqx.field(converter=parameter("regularization"), default=1e-4)
    conditional: str = eqx.field(static=True, default="observational")
    kernel: AbstractKernel | None = None
    end_points: str = eqx.field(static=True, default="exact")
    solver: str = eqx.field(static=True, default="cholesky")
    max_steps: int = eqx.field(static=True, default=500)
    matches: Float[AnyArray, "m 2 d"] | None = eqx.field(
        converter=lambda value: None if value is None else as_pairs(value, "matches"), default=None
    )
    batch_size: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        """Refuse unknown options."""
        check_conditional(self.conditional)
        self.observational()

    def __call__(self, function: Any, x: Any, coalitions: Any) -> Float[Array, "*draws c p"]:
        """Value coalitions of context features at duels in contexts, or at contexts if there are matches.

        Raises:
            ValueError: If `x` or `coalitions` are not as said, or the system is numerically singular.
            TypeError: If `function` is no function of pairs in contexts.
            RuntimeError: If conjugate gradients do not converge.
        """
        function = check_preference(function, contextual=True)
        settings = self._read(function, x)
        coalitions = as_coalitions(coalitions, settings.rows.shape[1])
        warn_if_float32("PreferentialContext")
        values = _values(self, function, MatchTable.shared(function), settings, jnp.asarray(coalitions))
        return check_finite(values, self.regularization)

    def base(self, function: Any) -> Float[Array, "*draws"]:
        """Return the value of the empty coalition, averaged over `matches`."""
        if self.matches is None:
            raise TypeError("the base value is that of a duel, so it takes `base_at(function, x)`, or `matches`")
        return self.base_at(function, self.contexts[:1])[..., 0]

    def base_at(self, function: Any, x: Any) -> Float[Array, "*draws p"]:
        """Return the value of the empty coalition at points."""
        return self(function, x, np.zeros((1, self.contexts.shape[1]), dtype=bool))[..., 0, :]

    def observational(self) -> Observational:
        """Return the game of a context alone, which has the references and knows how to condition on them."""
        return game_of_references(self, self.contexts)

    def _read(self, function: RKHSFunction, x: Any) -> _Settings:
        (pairs, contexts), num_features = split_points(function.points), self.contexts.shape[1]
        if contexts.shape[-1] != num_features:
            raise ValueError(
                f"`contexts` must have {contexts.shape[-1]} columns (features), as those of `function`, got shape "
                f"{self.contexts.shape}"
            )
        if (self.matches is None) != isinstance(x, tuple):
            needed = "the tuple (pairs, contexts)" if self.matches is None else "contexts alone, beside `matches`"
            raise ValueError(f"`x` must be {needed}, got {type(x).__name__}")
        own, rows = x if self.matches is None else (None, x)
        rows, at = number_rows(as_points(rows, num_features=num_features))
        met = as_pairs(self.matches if own is None else own, "x" if own is not None else "matches", pairs.shape[-1])
        oriented = orient(met, PreferentialContext, "x")
        if own is not None:
            check_same_rows(met.shape[0], len(at), "the pairs of x", "the contexts of x")
        items, index = number_rows(oriented.pairs.reshape(-1, met.shape[2]))
        left, right = jnp.asarray(index).reshape(-1, 2).T
        return _Settings(rows, jnp.asarray(at), items, left, right, oriented)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractValueFunction, RKHSFunction, Any]]:
        """Yield an instance with a function and duels in contexts; both have two features."""
        pairs, x = jax.random.normal(rng_key, (5, 2, 2)), jax.random.normal(rng_key, (2, 2, 2)) - 0.5
        kernel = Contextual(GeneralizedPreferential(RBF(1.2)), RBF(jnp.array([0.8, 1.4])) + 0.3)
        points, rows = (pairs, jnp.sin(2 * pairs[:, 0])), (x, jnp.cos(x[:, 0]))
        function = RKHSFunction(kernel, points, jnp.cos(jnp.arange(5.0)))
        yield cls(points[1][:3] + 0.1, 0.01), function, rows


class _Settings(eqx.Module):
    """Numbered contexts, and the duels in them: one for each context, or those that are averaged over."""

    rows: Float[Array, "q c"]
    at: Int[Array, " p"]
    items: Float[Array, "i d"]
    left: Int[Array, " r"]
    right: Int[Array, " r"]
    orientation: Oriented


@eqx.filter_jit
def _values(
    game: PreferentialContext, function: RKHSFunction, table: MatchTable | None, settings: _Settings, coalitions: Array
) -> Float[Array, "*draws c p"]:
    def of_draw(draw: RKHSFunction) -> Array:
        known = MatchTable.read(draw.points) if table is None else table
        terms, observational = comparisons(draw.kernel), game.observational()
        weights = absent_weights(observational, game.conditional, _context_kernel(terms[0]), settings.rows)
        parts = [_term_values(game, observational, term, draw, known, settings) for term in terms]

        def of_coalition(mask: Bool[Array, " c"]) -> Float[Array, " p"]:
            found = weights(mask)
            return sum_arrays(part(mask, found) for part in parts)

        num_references, num_rows = game.contexts.shape[0], settings.rows.shape[0]
        entries = (known.in_contexts()[0].shape[0] + num_references) * (num_rows + num_references)
        size = game.batch_size or coalitions_at_once(entries, coalitions.shape[0])
        return jax.lax.map(of_coalition, coalitions, batch_size=size) + draw.intercept

    return function.map_draws(of_draw)


def _term_values(
    game: PreferentialContext,
    observational: Observational,
    term: Comparison,
    function: RKHSFunction,
    table: MatchTable,
    settings: _Settings,
) -> Callable[[Array, Array], Float[Array, " p"]]:
    """Return the values of one term of the kernel as a function of a coalition and the weights of the references."""
    kernel = _context_kernel(term)
    sections = restricted_sections(observational, game.conditional, kernel, table.in_contexts()[0], settings.rows)
    weights = term.scale(function.coefficients)
    average = _mean_weights if game.matches is not None else _own_weights
    shares = average(term, weights, table, settings)

    def values(mask: Array, found: Array) -> Float[Array, " p"]:
        return jnp.sum(shares * sections(mask, found)[:, settings.at], axis=0)

    return values


def _context_kernel(term: Comparison) -> AbstractKernel:
    assert term.context_kernel is not None, "`check_preference` has seen to it"
    return term.context_kernel


def _own_weights(
    term: Comparison, weights: Float[Array, " m"], table: MatchTable, settings: _Settings
) -> Float[Array, "u p"]:
    r"""Return for each context of the function, and each duel, :math:`\sum_j \alpha_j k_E((a_j, b_j), (x, x'))`."""
    form = SkewForm.compare(term.is_general, table.items.shape[0], table.first, table.second, weights)
    sections = form.extend(term.kernel(table.items, settings.items), jnp.ones(()))
    contexts, context = table.in_contexts()
    sums = form.sum_groups(sections, sections, settings.left, settings.right, context, contexts.shape[0])
    return settings.orientation.skew(sums.T).T


def _mean_weights(
    term: Comparison, weights: Float[Array, " m"], table: MatchTable, settings: _Settings
) -> Float[Array, "u 1"]:
    """Return the same for the mean over duels, by a form over these duels, evaluated at the matches of the function."""
    shares = settings.orientation.signs * ~settings.orientation.trivial / len(settings.left)
    form = SkewForm.compare(term.is_general, settings.items.shape[0], settings.left, settings.right, shares)
    sections = form.extend(term.kernel(settings.items, table.items), jnp.ones(()))
    means = form.prepare()(sections, sections, table.first, table.second)
    contexts, context = table.in_contexts()
    return jax.ops.segment_sum(weights * means, context, contexts.shape[0])[:, None]
