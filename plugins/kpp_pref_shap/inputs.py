"""The inputs of an explanation: duels, items, contexts or matches, and the names of their features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from kpp import RKHSFunction
from kpp.data.tables import Schema, is_table
from kpp.explanations import Inputs, resolve
from kpp.explanations.toolkit import ReadPredictor, read_rows
from kpp.foundation.validation import as_points, check_same_rows
from kpp.games import as_players
from kpp.preferences import Matches
from kpp.typing import AnyArray
from kpp_pref_shap.pair_functions import as_pairs, check_preference, split_points
from kpp_pref_shap.teams import TeamInputs, duels_of_members, of_members

Groups = Mapping[str, Any] | Sequence[tuple[str, Any]] | None


def read_duels(
    predictor: Any, x: Any, opponents: Float[AnyArray, "r d"] | None, groups: Groups, *, has_contexts: bool
) -> Inputs:
    """Read the inputs of a game of items: a function on pairs, and the points to explain.

    These are pairs, or items if there are opponents, in a tuple with contexts if the function has contexts that the
    game does not average over; or matches. Duels of teams are read as the duels of their members. Raises TypeError if
    the predictor is not such a function, and ValueError if `x` does not have the form that the game needs.
    """
    known = ReadPredictor.read(predictor, "pairs")
    matches = x if isinstance(x, Matches) else None
    points, shares = duels_of_members(x if matches is None else _winners_first(matches))
    items, contexts = split_points(points)
    schema = known.schema
    if opponents is not None:
        if matches is not None:
            raise ValueError("`x` must be items (p, d), which are compared with all `opponents`, got Matches")
        items, schema = read_rows(items, schema)
        opponent = np.mean(np.asarray(opponents), axis=0, keepdims=True)
        items = np.stack([items, np.broadcast_to(opponent, items.shape)], axis=1)
    elif schema is None and matches is not None:
        schema = matches.schema
    resolved = resolve(known, items, "pairs")
    function, pairs = check_preference(of_members(resolved.function)), np.asarray(resolved.x)
    if shares is not None and function is resolved.function:
        raise ValueError("`x` must hold items described by rows, as the function does, got teams")
    as_pairs(pairs, "x", split_points(function.points)[0].shape[-1])
    contexts = _contexts_of_duels(function, contexts, len(pairs), has_contexts)
    rows = _pack_rows(function, pairs[:, 0], pairs[:, 1], contexts, len(pairs))
    names = Schema((schema or resolved.schema).feature_names)
    known = known._replace(function=function)
    return _inputs(known, rows, pairs[:, 0] - pairs[:, 1], names, matches, groups, shares)


def read_contexts(
    predictor: Any, x: Any, references: Float[AnyArray, "n c"], pairs: AnyArray | None, groups: Groups
) -> Inputs:
    """Read the inputs of a game of contexts: a function on pairs in contexts, and the points to explain.

    These are a tuple of pairs and contexts, or contexts if there are pairs to average over, or matches. Raises
    TypeError if the predictor is not such a function, and ValueError if `x` does not have the form that the game needs.
    """
    known = ReadPredictor.read(predictor, "pairs")
    matches = x if isinstance(x, Matches) else None
    if matches is not None:
        matches.refuse_teams("the game of contexts")
    points = x if matches is None else _winners_first(matches)
    if pairs is None:
        duels, contexts = split_points(points)
        if contexts is None:
            raise ValueError("`x` must be a tuple of pairs and contexts, or the value function needs `matches`")
    else:
        duels, contexts = None, points[1] if isinstance(points, tuple) else points
    resolved = resolve(known, pairs if duels is None else duels, "pairs")
    function = check_preference(resolved.function, contextual=True)
    schema = None if matches is None else matches.context_schema
    if schema is None and not is_table(contexts):
        schema = Schema(tuple(f"u{j}" for j in range(references.shape[1])))
    contexts, schema = read_rows(contexts, schema)
    contexts = as_points(contexts, "x", num_features=split_points(function.points)[1].shape[-1])
    first, second = (None, None) if duels is None else np.asarray(resolved.x).swapaxes(0, 1)
    if first is not None:
        check_same_rows(first.shape[0], contexts.shape[0], "the pairs of x", "the contexts of x")
    rows = _pack_rows(function, first, second, contexts, contexts.shape[0])
    return _inputs(known, rows, np.asarray(contexts), schema, matches, groups)


def _inputs(
    known: ReadPredictor,
    rows: Float[Array, "p columns"],
    data: Float[np.ndarray, "p g"],
    schema: Schema,
    matches: Matches | None,
    groups: Groups,
    shares: Float[np.ndarray, "t p"] | None = None,
) -> Inputs:
    """Return the inputs: both items and the context of each instance side by side, and what is shown of them."""
    players = as_players(None if groups is None else dict(groups), schema.num_features, schema.feature_names)
    read = Inputs(known.predictor, known.function, rows, schema, players, None, "pairs", data, _names(matches))
    return read if shares is None else TeamInputs(**vars(read), shares=shares)


def _winners_first(matches: Matches) -> Any:  # teams are `PaddedBags`
    """Return the points of matches, each pair with the more frequent winner first."""
    lost = np.asarray(matches.wins) < np.asarray(matches.losses)
    order = np.where(lost[:, None], [[1, 0]], [[0, 1]])
    pairs = jax.tree.map(lambda leaf: np.asarray(leaf)[np.arange(len(lost))[:, None], order], matches.points)
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
