"""The value function "preferential-items": what features that both items have are worth for the preference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kpp import RKHSFunction
from kpp.batching import sum_arrays
from kpp.games import AbstractValueFunction, Observational, as_coalitions
from kpp.kernels import (
    RBF,
    AbstractKernel,
    Contextual,
    GeneralizedPreferential,
    Oriented,
    Preferential,
    orient,
    parameter,
)
from kpp.linalg import FactorizationError
from kpp.typing import AnyArray, Leaf, RngKey
from kpp.validation import as_finite_array, as_points, check_same_rows, is_concrete, warn_if_float32
from kpp_pref_shap.comparisons import Comparison, check_preference, comparisons, split_points
from kpp_pref_shap.match_table import MatchTable
from kpp_pref_shap.sections import absent_weights, check_conditional, game_of_references, restricted_sections
from kpp_pref_shap.skew_forms import SkewForm, number_rows

__all__ = ["PreferentialItems", "as_pairs", "check_finite", "coalitions_at_once", "optional_points"]

# Entries of the matrices of the coalitions that are worked on at once.
_MAX_ENTRIES = 2**22


def optional_points(name: str) -> Callable[[Any], Any]:
    """Return the converter of a field that holds points (n, d), or None."""
    return lambda value: None if value is None else as_points(value, name)


def as_pairs(pairs: Any, name: str, num_features: int | None = None) -> Float[Array, "p 2 d"]:
    """Return pairs of items as an array, or refuse with a `ValueError` what is none."""
    array = as_finite_array(pairs, name)
    if array.ndim != 3 or array.shape[1] != 2 or 0 in array.shape:
        raise ValueError(f"`{name}` must hold pairs of items, shape (p, 2, d), got shape {array.shape}")
    as_points(array[:, 0], name, num_features=num_features)
    return array


class PreferentialItems(AbstractValueFunction):
    r"""Absent features of both items are averaged over reference items, those of one independently of the other's.

    .. math::

        v(S) = \sum_{u, u'} w_u(x)\, w_{u'}(x')\; g\bigl((x_S, z_{u, S^c}), (x'_S, z_{u', S^c})\bigr), \qquad
        w(x) = (K_{Z_S Z_S} + n \lambda I)^{-1} k(Z_S, x_S)

    or, interventional, :math:`w = 1/n`. A feature is known, or not, of both items. The values change their sign where
    the items are exchanged, and that of no feature is 0. With exact end points the full coalition is worth g(x, x');
    the formula alone, "raw", shrinks it.

    The function g is an `RKHSFunction` on pairs whose kernel is `GeneralizedPreferential`, `Preferential`, a
    `Contextual` one of them, or a sum or multiple of such. Nothing is computed match by match: with the different items
    Z' of the function :math:`v(S) = G_S(x)^\top M\, G_S(x')`, M being skew and of their number.

    Points are pairs (p, 2, d), or tuples of pairs and contexts (p, c) for functions with contexts, whose every pair is
    compared in its own. Two options change that:

    * `opponents` compares items with all of some others, :math:`\frac1r \sum_i v_{x, o_i}(S)`. Points are items (p, d).
    * `contexts` averages the function over contexts, :math:`\frac1c \sum_i g_{u_i}`. Points have no contexts.

    Args:
        background: The reference items z, (n, d); `kpp.features.landmarks` chooses few of many.
        regularization: :math:`\lambda`, positive.
        conditional: "observational" or "interventional".
        kernel: The kernel k of the conditional mean embeddings: by default that of the items, if it is a product kernel
            up to a constant, else as for `kpp.games.Observational`; that of the first term where there are several.
        end_points: "exact" or "raw".
        solver: "cholesky", or "cg" for preconditioned conjugate gradients.
        max_steps: The largest number of steps of conjugate gradients.
        opponents: Items (r, d) that each item is compared with, or None.
        contexts: Contexts (c', c) that the function is averaged over, or None.
        batch_size: How many coalitions are worked on at once; by default what fits.

    References:
        Chau, Towards trustworthy machine learning with kernels, 2023, definition 7.3.1 and proposition 7.3.3, whose
        matrix of weights is that of the reference items.
    """

    background: Float[AnyArray, "n d"] = eqx.field(converter=lambda value: as_points(value, "background"))
    regularization: Leaf = eqx.field(converter=parameter("regularization"), default=1e-4)
    conditional: str = eqx.field(static=True, default="observational")
    kernel: AbstractKernel | None = None
    end_points: str = eqx.field(static=True, default="exact")
    solver: str = eqx.field(static=True, default="cholesky")
    max_steps: int = eqx.field(static=True, default=500)
    opponents: Float[AnyArray, "r d"] | None = eqx.field(converter=optional_points("opponents"), default=None)
    contexts: Float[AnyArray, "c1 c"] | None = eqx.field(converter=optional_points("contexts"), default=None)
    batch_size: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        """Refuse unknown options, and opponents with other features than the background."""
        check_conditional(self.conditional)
        self.observational()
        if self.opponents is not None:
            as_points(self.opponents, "opponents", num_features=self.background.shape[1])

    def __call__(self, function: Any, x: Any, coalitions: Any) -> Float[Array, "*draws c p"]:
        """Value coalitions of features at duels, or at items if there are opponents.

        Raises:
            ValueError: If `x` or `coalitions` are not as said, or the system is numerically singular.
            TypeError: If `function` is no function of pairs with a kernel as above.
            RuntimeError: If conjugate gradients do not converge.
        """
        function = check_preference(function)
        duels = self._read(function, x)
        coalitions = as_coalitions(coalitions, duels.rows.shape[1])
        warn_if_float32("PreferentialItems")
        values = _values(self, function, MatchTable.shared(function), duels, jnp.asarray(coalitions))
        return check_finite(values, self.regularization)

    def base(self, function: Any) -> Float[Array, "*draws"]:
        """Return the value of the empty coalition: 0, plus the intercept of the function."""
        return function.intercept

    def observational(self) -> Observational:
        """Return the game of a single item, which has the references and knows how to condition on them."""
        return game_of_references(self, self.background)

    def _read(self, function: RKHSFunction, x: Any) -> _Duels:
        num_features = self.background.shape[1]
        pairs, contexts = split_points(function.points)
        if pairs.shape[-1] != num_features:
            raise ValueError(
                f"`background` must have {pairs.shape[-1]} columns (features), as the items of `function`, got shape "
                f"{self.background.shape}"
            )
        own = contexts is not None and self.contexts is None
        if own != isinstance(x, tuple):
            needed = "the tuple (pairs, contexts)" if own else "no tuple: this function, or game, has no contexts of x"
            raise ValueError(f"`x` must be {needed}, got {type(x).__name__}")
        items, own_contexts = split_points(x)
        if own:
            own_contexts = as_points(own_contexts, "x", num_features=contexts.shape[-1])
            check_same_rows(jnp.shape(items)[0], own_contexts.shape[0], "the pairs of x", "the contexts of x")
            own_contexts = _only_one(own_contexts)
        if self.opponents is not None:
            return _against_all(as_points(items, num_features=num_features), self.opponents, own_contexts)
        return _one_by_one(as_pairs(items, "x", num_features), own_contexts)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractValueFunction, RKHSFunction, Any]]:
        """Yield instances with functions and duels: both conditionals, both kinds of preferences, contexts."""
        items, x = jax.random.normal(rng_key, (5, 2, 3)), jax.random.normal(rng_key, (2, 2, 3)) - 0.5
        coefficients, kernel = jnp.cos(jnp.arange(5.0)), RBF(lengthscale=jnp.array([0.8, 1.0, 1.5]), variance=1.3)
        general = GeneralizedPreferential(kernel + 0.7)
        yield cls(items[:3, 0] + 0.1, 0.01), RKHSFunction(general, items, coefficients), x
        contextual = Contextual(Preferential(kernel) + 0.5 * general, RBF(1.1))
        points, rows = (items, jnp.sin(items[:, 0])), (x, jnp.cos(x[:, 0]))
        game = cls(items[:3, 0] + 0.1, conditional="interventional")
        yield game, RKHSFunction(contextual, points, coefficients), rows


class _Duels(eqx.Module):
    """Who meets whom: numbered rows, the left and the right ones of each duel, and the contexts they meet in.

    Against all opponents, the right side is the mean of some rows.
    """

    rows: Float[Array, "q d"]
    left: Int[Array, " p"]
    right: Int[Array, " p"]
    opponents: Int[Array, " r"] | None
    orientation: Oriented | None
    contexts: Float[Array, "p1 c"] | None

    def right_sections(self, sections: Float[Array, "n q"]) -> Float[Array, "n r"]:
        """Return the sections that `right` numbers."""
        if self.opponents is None:
            return sections
        return jnp.mean(sections[:, self.opponents], axis=1, keepdims=True)

    def skew(self, values: Float[Array, "c p"]) -> Float[Array, "c p"]:
        """Give values of oriented duels the sign of the duels that came in."""
        return values if self.orientation is None else self.orientation.skew(values.T).T


def _one_by_one(pairs: Float[Array, "p 2 d"], contexts: Array | None) -> _Duels:
    oriented = orient(pairs, PreferentialItems, "x")
    rows, index = number_rows(oriented.pairs.reshape(-1, pairs.shape[2]))
    left, right = jnp.asarray(index).reshape(-1, 2).T
    return _Duels(rows, left, right, None, oriented, contexts)


def _against_all(items: Float[Array, "p d"], opponents: Any, contexts: Array | None) -> _Duels:
    rows, index = number_rows(jnp.concatenate([items, jnp.asarray(opponents)]))
    left, others = jnp.asarray(index)[: len(items)], jnp.asarray(index)[len(items) :]
    return _Duels(rows, left, jnp.zeros_like(left), others, None, contexts)


def _only_one(contexts: Float[Array, "p c"]) -> Float[Array, "p1 c"]:
    """Return contexts that can be seen to be the same as one of them."""
    return contexts[:1] if is_concrete(contexts) and bool((contexts == contexts[:1]).all()) else contexts


@eqx.filter_jit
def _values(
    game: PreferentialItems, function: RKHSFunction, table: MatchTable | None, duels: _Duels, coalitions: Array
) -> Float[Array, "*draws c p"]:
    def of_draw(draw: RKHSFunction) -> Array:
        known = MatchTable.read(draw.points) if table is None else table
        terms, observational = comparisons(draw.kernel), game.observational()
        weights = absent_weights(observational, game.conditional, terms[0].kernel, duels.rows)
        parts = [_term_values(game, observational, term, draw, known, duels) for term in terms]

        def of_coalition(mask: Bool[Array, " d"]) -> Float[Array, " p"]:
            found = weights(mask)
            values = sum_arrays(part(mask, found) for part in parts)
            return jnp.where(jnp.any(mask), values, 0.0)  # without features both items are the same

        num_references, num_rows = game.background.shape[0], duels.rows.shape[0]
        entries = (known.items.shape[0] + num_references) * (num_rows + num_references)
        if duels.contexts is not None and duels.contexts.shape[0] > 1:  # then matches are added up one by one
            entries += draw.num_points * duels.left.shape[0]
        size = game.batch_size or coalitions_at_once(entries, coalitions.shape[0])
        return duels.skew(jax.lax.map(of_coalition, coalitions, batch_size=size)) + draw.intercept

    return function.map_draws(of_draw)


def _term_values(
    game: PreferentialItems,
    observational: Observational,
    term: Comparison,
    function: RKHSFunction,
    table: MatchTable,
    duels: _Duels,
) -> Callable[[Array, Array], Float[Array, " p"]]:
    """Return the values of one term of the kernel as a function of a coalition and the weights of the references."""
    sections = restricted_sections(observational, game.conditional, term.kernel, table.items, duels.rows)
    weights = term.scale(function.coefficients)
    if term.context_kernel is not None:
        known, context = table.in_contexts()
        factors = term.context_kernel(known, duels.contexts if game.contexts is None else jnp.asarray(game.contexts))
        averaged = game.contexts is not None or factors.shape[1] == 1
        factors = jnp.mean(factors, axis=1) if averaged else factors
        weights = weights.reshape(-1, *[1] * (factors.ndim - 1)) * factors[context]
    form = SkewForm.compare(term.is_general, table.items.shape[0], table.first, table.second, weights)
    evaluate = form.prepare()

    def values(mask: Array, found: Array) -> Float[Array, " p"]:
        left = form.extend(sections(mask, found), jnp.sum(found, axis=0))
        return evaluate(left, duels.right_sections(left), duels.left, duels.right)

    return values


def coalitions_at_once(entries: int, num_coalitions: int) -> int:
    """Return how many coalitions to work on at once if one takes matrices of so many entries."""
    return max(1, min(num_coalitions, _MAX_ENTRIES // entries))


def check_finite(values: Array, regularization: Any) -> Array:
    """Return values as they came, or refuse them where a matrix could not be factorised.

    Raises:
        FactorizationError: If some are NaN or infinite.
    """
    if is_concrete(values) and not bool(jnp.all(jnp.isfinite(values))):
        raise FactorizationError(
            f"`regularization` {regularization} is too small for the kernel matrix of the references: some values are "
            "NaN or infinite; make it larger, or remove duplicated rows"
        )
    return values
