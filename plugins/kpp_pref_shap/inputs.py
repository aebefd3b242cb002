"""What is to be explained, read: duels, items, contexts, or matches, and what their features are called."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp import RKHSFunction
from kpp.explanations import fitted_schema, resolve, schema_of
from kpp.preferences import Matches
from kpp.tables import Schema, is_table
from kpp.validation import as_points, check_same_rows
from kpp_pref_shap.comparisons import check_preference, split_points
from kpp_pref_shap.context_game import PreferentialContext
from kpp_pref_shap.item_game import PreferentialItems, as_pairs
from kpp_pref_shap.side_by_side import pack_rows

__all__ = ["Task", "read_task"]


class Task(NamedTuple):
    """What is explained.

    Attributes:
        function: The function on pairs, perhaps in contexts.
        rows: Both items and the context of each instance side by side, (p, 2 d + c).
        data: What is shown of each instance, (p, players' features).
        schema: The names of the features that play, and for contexts their levels.
        instance_names: What the instances are called, or None.
        explains: "duels", "items against opponents", "contexts of duels" or "contexts".
    """

    function: RKHSFunction
    rows: Float[Array, "p columns"]
    data: Float[np.ndarray, "p g"]
    schema: Schema
    instance_names: list[str] | None
    explains: str


def read_task(game: PreferentialItems | PreferentialContext, predictor: Any, x: Any) -> Task:
    """Read what a game is to explain.

    Args:
        game: The value function, which says what instances are.
        predictor: A `kpp.Fit` of a preference model, or a `kpp.RKHSFunction` on pairs.
        x: The instances.

    Returns:
        The task.

    Raises:
        TypeError: If the predictor is no such function.
        ValueError: If `x` is not what the game and the function ask for.
    """
    matches = x if isinstance(x, Matches) else None
    if matches is not None:
        x = _winners_first(matches)
    if isinstance(game, PreferentialContext):
        return _read_contexts(game, predictor, x, matches)
    return _read_items(game, predictor, x, matches)


def _winners_first(matches: Matches) -> Any:
    """Return the points of matches, each with the item first that won more often."""
    pairs = np.asarray(matches.points)
    lost = np.asarray(matches.wins) < np.asarray(matches.losses)
    pairs = np.where(lost[:, None, None], pairs[:, ::-1], pairs)
    return pairs if matches.contexts is None else (pairs, matches.contexts)


def _names(matches: Matches | None) -> list[str] | None:
    """Return "winner - loser" for each match, unless matches of one pair share it."""
    if matches is None or not matches.item_names:
        return None
    lost = np.asarray(matches.wins) < np.asarray(matches.losses)
    pairs = np.where(lost[:, None], np.asarray(matches.pairs)[:, ::-1], np.asarray(matches.pairs))
    names = [f"{matches.item_names[first]} - {matches.item_names[second]}" for first, second in pairs]
    return names if len(set(names)) == len(names) else None


def _read_items(game: PreferentialItems, predictor: Any, x: Any, matches: Matches | None) -> Task:
    items, contexts = _split_input(x)
    schema: Schema | None
    if game.opponents is not None:
        if matches is not None:
            raise ValueError("`x` must be items (p, d), which are compared with all `opponents`, got Matches")
        known = fitted_schema(predictor) or schema_of(items)
        schema, items = known, jnp.asarray(known.read(items))
        opponent = jnp.mean(jnp.asarray(game.opponents), axis=0, keepdims=True)
        items = jnp.stack([items, jnp.broadcast_to(opponent, items.shape)], axis=1)
    else:
        schema = fitted_schema(predictor) or (None if matches is None else matches.schema)
    resolved = resolve(predictor, items, "pairs")
    function, pairs = check_preference(resolved.function), resolved.x
    names = (schema or resolved.schema).feature_names
    as_pairs(pairs, "x", split_points(function.points)[0].shape[-1])
    contexts = _contexts_of_items(game, function, contexts, len(pairs))
    return Task(
        function,
        pack_rows(function, pairs[:, 0], pairs[:, 1], contexts, len(pairs)),
        np.asarray(pairs[:, 0] - pairs[:, 1]),
        Schema(names),
        _names(matches),
        "duels" if game.opponents is None else "items against opponents",
    )


def _contexts_of_items(game: PreferentialItems, function: RKHSFunction, contexts: Any, num_rows: int) -> Any:
    """Return the contexts of duels, or None if the function has none, or is averaged over others."""
    known = split_points(function.points)[1]
    if known is None or game.contexts is not None:
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


def _read_contexts(game: PreferentialContext, predictor: Any, x: Any, matches: Matches | None) -> Task:
    if game.matches is not None:
        pairs, contexts = None, x[1] if isinstance(x, tuple) else x
    else:
        pairs, contexts = _split_input(x)
        if contexts is None:
            raise ValueError("`x` must be a tuple of pairs and contexts, or the value function needs `matches`")
    resolved = resolve(predictor, game.matches if pairs is None else pairs, "pairs")
    function = check_preference(resolved.function, contextual=True)
    schema = matches.context_schema if matches is not None else _context_schema(contexts, game.contexts.shape[1])
    contexts = as_points(schema.read(contexts, "x"), "x", num_features=split_points(function.points)[1].shape[-1])
    first, second = (None, None) if pairs is None else (resolved.x[:, 0], resolved.x[:, 1])
    if first is not None:
        check_same_rows(first.shape[0], contexts.shape[0], "the pairs of x", "the contexts of x")
    return Task(
        function,
        pack_rows(function, first, second, contexts, contexts.shape[0]),
        np.asarray(contexts),
        schema,
        _names(matches),
        "contexts of duels" if game.matches is None else "contexts",
    )


def _split_input(x: Any) -> tuple[Any, Any]:
    """Return items or pairs and contexts, None where there are none."""
    return x if isinstance(x, tuple) and len(x) == 2 else (x, None)


def _context_schema(contexts: Any, num_features: int) -> Schema:
    """Return the names of a data frame's columns, or u0, u1, ..."""
    return schema_of(contexts) if is_table(contexts) else Schema(tuple(f"u{j}" for j in range(num_features)))
