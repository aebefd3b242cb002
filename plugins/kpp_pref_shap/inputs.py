"""The inputs of an explanation: duels, items, contexts or matches, and the names of their features."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from kpp import RKHSFunction
from kpp.data.tables import Schema, is_table
from kpp.explanations import resolve
from kpp.explanations.toolkit import fitted_schema, schema_of
from kpp.foundation.validation import as_points, check_same_rows
from kpp.preferences import Matches
from kpp.typing import AnyArray
from kpp_pref_shap.pair_functions import PairPoints, as_pairs, check_preference, split_points


class PreferenceInputs(NamedTuple):
    """The function and the instances to explain.

    Attributes:
        function: The function on pairs, possibly in contexts.
        rows: Both items and the context of each instance side by side, (p, 2 d + c).
        data: The data shown with the values of each instance, (p, players' features).
        schema: The names of the players' features, and for contexts their levels.
        instance_names: The names of the instances, or None.
        explains: "duels", "items against opponents", "contexts of duels" or "contexts".
    """

    function: RKHSFunction
    rows: Float[Array, "p columns"]
    data: Float[np.ndarray, "p g"]
    schema: Schema
    instance_names: list[str] | None
    explains: str


def read_duels(
    predictor: Any, x: Any, opponents: Float[AnyArray, "r d"] | None, *, has_contexts: bool
) -> PreferenceInputs:
    """Read the inputs of a game of items: a function on pairs, and the points to explain.

    These are pairs, or items if there are opponents, in a tuple with contexts if the function has contexts that the
    game does not average over; or matches. Raises TypeError if the predictor is not such a function, and ValueError if
    `x` does not have the form that the game needs.
    """
    matches = x if isinstance(x, Matches) else None
    items, contexts = split_points(x if matches is None else _winners_first(matches))
    schema: Schema | None
    if opponents is not None:
        if matches is not None:
            raise ValueError("`x` must be items (p, d), which are compared with all `opponents`, got Matches")
        known = fitted_schema(predictor) or schema_of(items)
        schema, items = known, known.read(items)
        opponent = np.mean(np.asarray(opponents), axis=0, keepdims=True)
        items = np.stack([items, np.broadcast_to(opponent, items.shape)], axis=1)
    else:
        schema = fitted_schema(predictor) or (None if matches is None else matches.schema)
    resolved = resolve(predictor, items, "pairs")
    function, pairs = check_preference(resolved.function), np.asarray(resolved.x)
    names = (schema or resolved.schema).feature_names
    as_pairs(pairs, "x", split_points(function.points)[0].shape[-1])
    contexts = _contexts_of_duels(function, contexts, len(pairs), has_contexts)
    return PreferenceInputs(
        function,
        _pack_rows(function, pairs[:, 0], pairs[:, 1], contexts, len(pairs)),
        pairs[:, 0] - pairs[:, 1],
        Schema(names),
        _names(matches),
        "duels" if opponents is None else "items against opponents",
    )


def read_contexts(
    predictor: Any, x: Any, references: Float[AnyArray, "n c"], pairs: AnyArray | None
) -> PreferenceInputs:
    """Read the inputs of a game of contexts: a function on pairs in contexts, and the points to explain.

    These are a tuple of pairs and contexts, or contexts if there are pairs to average over, or matches. Raises
    TypeError if the predictor is not such a function, and ValueError if `x` does not have the form that the game needs.
    """
    matches = x if isinstance(x, Matches) else None
    points = x if matches is None else _winners_first(matches)
    if pairs is None:
        duels, contexts = split_points(points)
        if contexts is None:
            raise ValueError("`x` must be a tuple of pairs and contexts, or the value function needs `matches`")
    else:
        duels, contexts = None, points[1] if isinstance(points, tuple) else points
    resolved = resolve(predictor, pairs if duels is None else duels, "pairs")
    function = check_preference(resolved.function, contextual=True)
    schema = matches.context_schema if matches is not None else _context_schema(contexts, references.shape[1])
    contexts = as_points(schema.read(contexts, "x"), "x", num_features=split_points(function.points)[1].shape[-1])
    first, second = (None, None) if duels is None else np.asarray(resolved.x).swapaxes(0, 1)
    if first is not None:
        check_same_rows(first.shape[0], contexts.shape[0], "the pairs of x", "the contexts of x")
    return PreferenceInputs(
        function,
        _pack_rows(function, first, second, contexts, contexts.shape[0]),
        np.asarray(contexts),
        schema,
        _names(matches),
        "contexts of duels" if pairs is None else "contexts",
    )


def _winners_first(matches: Matches) -> PairPoints:
    """Return the points of matches, each pair with the more frequent winner first."""
    matches.refuse_teams("pref-shap")
    pairs = np.asarray(matches.points)
    lost = np.asarray(matches.wins) < np.asarray(matches.losses)
    pairs = np.where(lost[:, None, None], pairs[:, ::-1], pairs)
    return pairs if matches.contexts is None else (pairs, matches.contexts)


def _names(matches: Matches | None) -> list[str] | None:
    """Return "winner - loser" for each match, or None if a pair occurs twice."""
    if matches is None or not matches.item_names:
        return None
    lost = np.asarray(matches.wins) < np.asarray(matches.losses)
    pairs = np.where(lost[:, None], np.asarray(matches.pairs)[:, ::-1], np.asarray(matches.pairs))
    names = [f"{matches.item_names[first]} - {matches.item_names[second]}" for first, second in pairs]
    return names if len(set(names)) == len(names) else None


def _contexts_of_duels(
    function: RKHSFunction, contexts: ArrayLike | None, num_rows: int, has_contexts: bool
) -> Float[Array, "p c"] | None:
    """Return the contexts of duels, or None if the function has no contexts, or is averaged over other contexts."""
    known = split_points(function.points)[1]
    if known is None or has_contexts:
        if contexts is not None and known is None:
            raise ValueError("`x` must hold no contexts: the preference function has none")
        return None
    if contexts is None:
        raise ValueError(
            "`x` must be a tuple of pairs and contexts for this preference function, or the value function needs "
            "`contexts` to average over"
        )
    contexts = as_points(contexts, "x", num_features=known.shape[-1])
    check_same_rows(num_rows, contexts.shape[0], "the items of x", "the contexts of x")
    return contexts


def _context_schema(contexts: object, num_features: int) -> Schema:
    """Return the names of a data frame's columns, or u0, u1, ..."""
    return schema_of(contexts) if is_table(contexts) else Schema(tuple(f"u{j}" for j in range(num_features)))


def _pack_rows(
    function: RKHSFunction,
    first: Float[AnyArray, "p d"] | None,
    second: Float[AnyArray, "p d"] | None,
    contexts: Float[AnyArray, "p c"] | None,
    num_rows: int,
) -> Float[Array, "p columns"]:
    """Return rows of items (p, d) and contexts (p, c) side by side, with zeros for missing ones."""
    pairs, own_contexts = split_points(function.points)
    parts = [(first, pairs.shape[-1]), (second, pairs.shape[-1])]
    parts += [] if own_contexts is None else [(contexts, own_contexts.shape[-1])]
    columns = [np.zeros((num_rows, width)) if part is None else np.asarray(part) for part, width in parts]
    return jnp.asarray(np.concatenate(columns, axis=1))
