"""The value function "preferential-context": contributions of features of the context to a preference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kpp import RKHSFunction
from kpp.foundation.validation import as_points, check_same_rows
from kpp.games import AbstractValueFunction, Observational
from kpp.kernels import RBF, AbstractKernel, Contextual, GeneralizedPreferential, parameter
from kpp.kernels.toolkit import Oriented, orient
from kpp.preferences.toolkit import PreferenceTerm
from kpp.typing import AnyArray, Leaf, RngKey
from kpp_pref_shap.game import AbstractPreferenceGame, TermValues
from kpp_pref_shap.pair_functions import MatchTable, PairPoints, as_pairs, number_items, number_rows, split_points
from kpp_pref_shap.sections import Sections
from kpp_pref_shap.skew_forms import SkewForm


class PreferentialContext(AbstractPreferenceGame):
    r"""Absent features of the context are averaged over reference contexts; the two items are unchanged.

    .. math::

        v(S) = \sum_b w_b(u)\; g_{(u_S, z_{b, S^c})}(x, x'), \qquad
        w(u) = (K_{Z_S Z_S} + n \lambda I)^{-1} k(Z_S, u_S)

    or, interventional, :math:`w = 1/n`. The values change their sign if the items are exchanged. The value of the empty
    coalition is the mean preference over the contexts, which differs between duels: `base_at` returns it, and `base`
    only if all have the same matches. "raw" end points keep the formula, which shrinks towards 0.

    Points are tuples of pairs (p, 2, d) and contexts (p, c). With `matches` the preference is averaged over them,
    :math:`\frac1m \sum_j v_{u, x_j, x'_j}(S)`, and points are contexts (p, c).

    Args:
        contexts: The reference contexts z, (n, c).
        regularization, conditional, end_points, batch_size: As for `PreferentialItems`.
        kernel: The kernel k of the conditional mean embeddings, by default that of the contexts, if it is a product
            kernel up to a constant, else as for `kpp.games.Observational`.
        matches: Pairs of items (m, 2, d) to average over, or None.

    References:
        Chau, Towards trustworthy machine learning with kernels, 2023, proposition 7.3.4, whose first factor is read as
        the factor of the present features, and whose matrix as that of the reference contexts.
    """

    contexts: Float[AnyArray, "n c"] = eqx.field(converter=lambda value: as_points(value, "contexts"))
    regularization: Leaf = eqx.field(converter=parameter("regularization"), default=1e-4)
    conditional: str = eqx.field(static=True, default="observational")
    kernel: AbstractKernel | None = None
    end_points: str = eqx.field(static=True, default="exact")
    matches: Float[AnyArray, "m 2 d"] | None = eqx.field(
        converter=lambda value: None if value is None else as_pairs(value, "matches"), default=None
    )
    batch_size: int | None = eqx.field(static=True, default=None)

    plays_contexts: ClassVar = True

    def base(self, function: Any) -> Float[Array, "*draws"]:
        """Return the value of the empty coalition, averaged over `matches`."""
        if self.matches is None:
            raise TypeError("the base value is that of a duel, so it takes `base_at(function, x)`, or `matches`")
        return self.base_at(function, self.contexts[:1])[..., 0]

    def base_at(self, function: Any, x: Any) -> Float[Array, "*draws p"]:
        return self(function, x, np.zeros((1, self.contexts.shape[1]), dtype=bool))[..., 0, :]

    def observational(self) -> Observational:
        return Observational(self.contexts, **self.conditioning)

    def points(self, pairs: Float[AnyArray, "p 2 d"], contexts: Float[AnyArray, "p c"] | None) -> Any:
        """Return pairs with contexts, or contexts alone if there are matches."""
        return (pairs, contexts) if self.matches is None else contexts

    def playing_kernel(self, term: PreferenceTerm) -> AbstractKernel:
        assert term.context_kernel is not None, "`check_preference` has checked it"
        return term.context_kernel

    def playing_rows(self, matches: MatchTable) -> Float[AnyArray, "m d"]:
        return matches.in_contexts()[0]

    def read_instances(self, function: RKHSFunction, x: PairPoints) -> _DuelsInContexts:
        (pairs, contexts), num_features = split_points(function.points), self.contexts.shape[1]
        if contexts.shape[-1] != num_features:
            raise ValueError(
                f"`contexts` must have {contexts.shape[-1]} columns (features), as those of `function`, got shape "
                f"{self.contexts.shape}"
            )
        if (self.matches is None) != isinstance(x, tuple):
            needed = "the tuple (pairs, contexts)" if self.matches is None else "contexts alone, beside `matches`"
            raise ValueError(f"`x` must be {needed}, got {type(x).__name__}")
        duels, rows = x if isinstance(x, tuple) else (self.matches, x)
        rows, at = number_rows(as_points(rows, num_features=num_features))
        duels = as_pairs(duels, "x" if self.matches is None else "matches", pairs.shape[-1])
        oriented = orient(duels, PreferentialContext, "x")
        if self.matches is None:
            check_same_rows(duels.shape[0], len(at), "the pairs of x", "the contexts of x")
        return _DuelsInContexts(rows, at, *number_items(oriented.pairs), oriented)

    def term_values(
        self,
        term: PreferenceTerm,
        weights: Float[Array, " m"],
        sections: Sections,
        matches: MatchTable,
        instances: _DuelsInContexts,
    ) -> TermValues:
        average = _weights_of_duels if self.matches is None else _mean_weights
        shares = average(term, weights, matches, instances)
        return lambda mask, weights: jnp.sum(shares * sections(mask, weights)[:, instances.at], axis=0)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractValueFunction, RKHSFunction, Any]]:
        pairs, x = jax.random.normal(rng_key, (5, 2, 2)), jax.random.normal(rng_key, (2, 2, 2)) - 0.5
        kernel = Contextual(GeneralizedPreferential(RBF(1.2)), RBF(jnp.array([0.8, 1.4])) + 0.3)
        points, rows = (pairs, jnp.sin(2 * pairs[:, 0])), (x, jnp.cos(x[:, 0]))
        function = RKHSFunction(kernel, points, jnp.cos(jnp.arange(5.0)))
        yield cls(points[1][:3] + 0.1, 0.01), function, rows


class _DuelsInContexts(eqx.Module):
    """Numbered contexts, the context of each instance, and duels: one per instance, or duels to average over."""

    rows: Float[AnyArray, "q c"]
    at: Int[AnyArray, " p"]
    items: Float[AnyArray, "i d"]
    left: Int[AnyArray, " r"]
    right: Int[AnyArray, " r"]
    orientation: Oriented


def _weights_of_duels(
    term: PreferenceTerm, weights: Float[Array, " m"], matches: MatchTable, duels: _DuelsInContexts
) -> Float[Array, "u p"]:
    r"""Return for each context of the function, and each duel, :math:`\sum_j \alpha_j k_E((a_j, b_j), (x, x'))`."""
    form = SkewForm.compare(term.has_utility, matches.items.shape[0], matches.first, matches.second, weights)
    sections = form.extend(term.kernel(matches.items, duels.items), jnp.ones(()))
    contexts, context = matches.in_contexts()
    sums = form.sum_groups(sections, sections, duels.left, duels.right, context, contexts.shape[0])
    return duels.orientation.skew(sums, axis=1)


def _mean_weights(
    term: PreferenceTerm, weights: Float[Array, " m"], matches: MatchTable, duels: _DuelsInContexts
) -> Float[Array, "u 1"]:
    """Return the same for the mean over duels, by a form over these duels, evaluated at the matches of the function."""
    shares = duels.orientation.signs * ~duels.orientation.trivial / len(duels.left)
    form = SkewForm.compare(term.has_utility, duels.items.shape[0], duels.left, duels.right, shares)
    sections = form.extend(term.kernel(duels.items, matches.items), jnp.ones(()))
    means = form.prepare()(sections, sections, matches.first, matches.second)
    contexts, context = matches.in_contexts()
    return jax.ops.segment_sum(weights * means, context, contexts.shape[0])[:, None]
