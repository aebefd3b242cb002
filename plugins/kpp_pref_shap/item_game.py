"""The value function "preferential-items": contributions of features of both items to a preference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kpp import RKHSFunction
from kpp.foundation.validation import as_points, check_same_rows, is_concrete
from kpp.games import AbstractValueFunction, Observational
from kpp.kernels import RBF, AbstractKernel, Contextual, GeneralizedPreferential, Preferential, parameter
from kpp.kernels.toolkit import Oriented, orient
from kpp.preferences.toolkit import PreferenceTerm
from kpp.typing import AnyArray, Leaf, RngKey
from kpp_pref_shap import pair_functions
from kpp_pref_shap.game import AbstractPreferenceGame, TermValues
from kpp_pref_shap.sections import Mask, Sections
from kpp_pref_shap.skew_forms import SkewForm


def _optional_points(name: str) -> Callable[[Any], Any]:
    """Return the converter of a field that holds points (n, d), or None."""
    return lambda value: None if value is None else as_points(value, name)


class PreferentialItems(AbstractPreferenceGame):
    r"""Absent features of both items are averaged over reference items, independently for the two items.

    .. math::

        v(S) = \sum_{u, u'} w_u(x)\, w_{u'}(x')\; g\bigl((x_S, z_{u, S^c}), (x'_S, z_{u', S^c})\bigr), \qquad
        w(x) = (K_{Z_S Z_S} + n \lambda I)^{-1} k(Z_S, x_S)

    or, interventional, :math:`w = 1/n`. A feature is present or absent for both items. The values change their sign if
    the items are exchanged, and the value of the empty coalition is 0. With exact end points the value of the full
    coalition is g(x, x'); the formula alone, "raw", shrinks it.

    The function g is an `RKHSFunction` on pairs whose kernel is `GeneralizedPreferential`, `Preferential`, a
    `Contextual` of one of them, or a sum or multiple of these. The computation does not run over the matches: with the
    distinct items Z' of the function, :math:`v(S) = G_S(x)^\top M\, G_S(x')`, where M is a skew-symmetric matrix with
    one row per item of Z'.

    Points are pairs (p, 2, d), or tuples of pairs and contexts (p, c) for functions with contexts, so that every pair
    has its own context. Two options change this:

    * `opponents` compares items with all of some others, :math:`\frac1r \sum_i v_{x, o_i}(S)`. Points are items (p, d).
    * `contexts` averages the function over contexts, :math:`\frac1c \sum_i g_{u_i}`. Points have no contexts.

    Args:
        background: The reference items z, (n, d); `kpp.features.landmarks` chooses few of many.
        regularization: :math:`\lambda`, positive.
        conditional: "observational" or "interventional".
        kernel: The kernel k of the conditional mean embeddings: by default the kernel of the items, if it is a product
            kernel up to a constant, otherwise as for `kpp.games.Observational`; with several terms, the kernel of the
            first.
        end_points: "exact" or "raw".
        opponents: Items (r, d) that each item is compared with, or None.
        contexts: Contexts (c', c) that the function is averaged over, or None.
        batch_size: The number of coalitions in a batch; by default as many as fit into memory.

    References:
        Chau, Towards trustworthy machine learning with kernels, 2023, definition 7.3.1 and proposition 7.3.3, whose
        matrix of weights is that of the reference items.
    """

    background: Float[AnyArray, "n d"] = eqx.field(converter=lambda value: as_points(value, "background"))
    regularization: Leaf = eqx.field(converter=parameter("regularization"), default=1e-4)
    conditional: str = eqx.field(static=True, default="observational")
    kernel: AbstractKernel | None = None
    end_points: str = eqx.field(static=True, default="exact")
    opponents: Float[AnyArray, "r d"] | None = eqx.field(converter=_optional_points("opponents"), default=None)
    contexts: Float[AnyArray, "c1 c"] | None = eqx.field(converter=_optional_points("contexts"), default=None)
    batch_size: int | None = eqx.field(static=True, default=None)

    plays_contexts: ClassVar = False

    def __check_init__(self) -> None:
        if self.opponents is not None:
            as_points(self.opponents, "opponents", num_features=self.background.shape[1])

    def base(self, function: Any) -> Float[Array, "*draws"]:
        """Return the value of the empty coalition: 0, plus the intercept of the function."""
        return function.intercept

    def observational(self) -> Observational:
        return Observational(self.background, **self.conditioning)

    def points(self, pairs: Float[AnyArray, "p 2 d"], contexts: Float[AnyArray, "p c"] | None) -> Any:
        """Return pairs, or items if there are opponents, with the contexts unless the game averages over contexts."""
        items = pairs if self.opponents is None else pairs[:, 0]
        return items if contexts is None or self.contexts is not None else (items, contexts)

    def playing_kernel(self, term: PreferenceTerm) -> AbstractKernel:
        return term.kernel

    def playing_rows(self, matches: pair_functions.MatchTable) -> Float[AnyArray, "m d"]:
        return matches.items

    def read_instances(self, function: RKHSFunction, x: pair_functions.PairPoints) -> _Duels:
        num_features = self.background.shape[1]
        pairs, contexts = pair_functions.split_points(function.points)
        if pairs.shape[-1] != num_features:
            raise ValueError(
                f"`background` must have {pairs.shape[-1]} columns (features), as the items of `function`, got shape "
                f"{self.background.shape}"
            )
        own = contexts is not None and self.contexts is None
        if own != isinstance(x, tuple):
            needed = "the tuple (pairs, contexts)" if own else "an array: this function or game takes no contexts"
            raise ValueError(f"`x` must be {needed}, got {type(x).__name__}")
        items, own_contexts = pair_functions.split_points(x)
        if own:
            own_contexts = as_points(own_contexts, "x", num_features=contexts.shape[-1])
            check_same_rows(jnp.shape(items)[0], own_contexts.shape[0], "the pairs of x", "the contexts of x")
            own_contexts = _shared_context(own_contexts)
        if self.opponents is not None:
            return _against_all(as_points(items, num_features=num_features), self.opponents, own_contexts)
        oriented = orient(pair_functions.as_pairs(items, "x", num_features), PreferentialItems, "x")
        return _Duels(*pair_functions.number_items(oriented.pairs), None, oriented, own_contexts)

    def term_values(
        self,
        term: PreferenceTerm,
        weights: Float[Array, " m"],
        sections: Sections,
        matches: pair_functions.MatchTable,
        instances: _Duels,
    ) -> TermValues:
        if term.context_kernel is not None:
            contexts, context = matches.in_contexts()
            at = instances.contexts if self.contexts is None else self.contexts
            factors = term.context_kernel(contexts, at)
            averaged = self.contexts is not None or factors.shape[1] == 1
            factors = jnp.mean(factors, axis=1) if averaged else factors
            weights = weights.reshape(-1, *[1] * (factors.ndim - 1)) * factors[jnp.asarray(context)]
        form = SkewForm.compare(term.has_utility, matches.items.shape[0], matches.first, matches.second, weights)
        evaluate = form.prepare()

        def values(mask: Mask, shares: Float[Array, "n w"]) -> Float[Array, " p"]:
            left = form.extend(sections(mask, shares), jnp.sum(shares, axis=0))
            of_term = evaluate(left, instances.right_sections(left), instances.left, instances.right)
            return instances.skew(jnp.where(jnp.any(mask), of_term, 0.0))  # without features both items are equal

        return values

    def entries_of_matches(self, num_matches: int, instances: _Duels) -> int:
        several = instances.contexts is not None and instances.contexts.shape[0] > 1
        return num_matches * instances.left.shape[0] if several else 0

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractValueFunction, RKHSFunction, Any]]:
        items, x = jax.random.normal(rng_key, (5, 2, 3)), jax.random.normal(rng_key, (2, 2, 3)) - 0.5
        coefficients, kernel = jnp.cos(jnp.arange(5.0)), RBF(lengthscale=jnp.array([0.8, 1.0, 1.5]), variance=1.3)
        general = GeneralizedPreferential(kernel + 0.7)
        yield cls(items[:3, 0] + 0.1, 0.01), RKHSFunction(general, items, coefficients), x
        contextual = Contextual(Preferential(kernel) + 0.5 * general, RBF(1.1))
        points, rows = (items, jnp.sin(items[:, 0])), (x, jnp.cos(x[:, 0]))
        game = cls(items[:3, 0] + 0.1, conditional="interventional")
        yield game, RKHSFunction(contextual, points, coefficients), rows


class _Duels(eqx.Module):
    """Numbered items, the left and the right item of each duel, and the contexts of the duels.

    Against all opponents, the right side is the mean of the rows that `opponents` numbers.
    """

    rows: Float[AnyArray, "q d"]
    left: Int[AnyArray, " p"]
    right: Int[AnyArray, " p"]
    opponents: Int[AnyArray, " r"] | None
    orientation: Oriented | None
    contexts: Float[AnyArray, "p1 c"] | None

    def right_sections(self, sections: Float[Array, "n q"]) -> Float[Array, "n r"]:
        """Return the sections that `right` numbers."""
        if self.opponents is None:
            return sections
        return jnp.mean(sections[:, self.opponents], axis=1, keepdims=True)

    def skew(self, values: Float[Array, " p"]) -> Float[Array, " p"]:
        """Multiply values of oriented duels by the signs of the original duels."""
        return values if self.orientation is None else self.orientation.skew(values)


def _against_all(items: Float[Array, "p d"], opponents: Float[AnyArray, "r d"], contexts: AnyArray | None) -> _Duels:
    known = is_concrete(items) and is_concrete(opponents)
    rows, index = pair_functions.number_rows((np if known else jnp).concatenate([items, opponents]))
    left, others = index[: len(items)], index[len(items) :]
    return _Duels(rows, left, np.zeros_like(left), others, None, contexts)


def _shared_context(contexts: Float[Array, "p c"]) -> Float[AnyArray, "p1 c"]:
    """Return one context if all contexts are known to be the same."""
    known = pair_functions.as_known(contexts)
    return known[:1] if isinstance(known, np.ndarray) and (known == known[:1]).all() else known
