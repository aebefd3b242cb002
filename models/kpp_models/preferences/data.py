"""Reading matches, and pairs for predictions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from kpp.data.tables import Schema
from kpp.foundation.validation import as_finite_array, as_points, as_targets, check_same_rows
from kpp.gp.toolkit import check_categories, code_columns, k_means_centers
from kpp.kernels import AbstractKernel, Contextual, resolve_features
from kpp.kernels.toolkit import PaddedBags
from kpp.preferences import Matches, Rankings
from kpp.preferences.toolkit import distinct_items
from kpp.typing import Numbers, Points, RngKey


def read_matches(x: object, y: Numbers | None, *, ties: bool) -> Matches:
    """Read the matches that a model is fitted to: `Matches`, or one pair per match with outcomes, as `fit` takes them.

    Raises ValueError if the data are invalid, or hold ties and the likelihood does not allow `ties`.
    """
    if not isinstance(x, Matches):
        return _count(x, y, ties)
    if y is not None:
        raise ValueError("`y` must be left out where `x` is kpp.preferences.Matches, which hold the outcomes")
    tied = float(np.asarray(x.ties).sum())
    if tied and not ties:
        raise ValueError(
            f"`x` holds {tied:g} ties, which `likelihood` has no place for; take likelihood='ordinal' with a "
            "`tie_width`, or leave the ties out"
        )
    return x


def read_pairs(x: object, schema: Schema | None, name: str = "x") -> Any:
    """Read pairs (p, 2, d) for predictions, possibly in a tuple with contexts (p, c).

    Of `kpp.preferences.Matches` the pairs are used in their order, each with the item of the lower number first. Pairs
    of teams are `kpp.kernels.toolkit.PaddedBags` of shapes (p, 2, L, d) and (p, 2). Contexts that were text must be
    coded as in the fit. Raises ValueError if the shape is wrong, or values are not finite.
    """
    if isinstance(x, Matches):
        if schema is not None and x.schema != schema:
            raise ValueError(
                f"`{name}` must hold items with the features {list(schema.feature_names)}, coded as in the matches "
                f"fitted to, got {list(x.feature_names)}; `Schema.read` reads other items alike"
            )
        return x.inputs
    pairs: Any = x
    contexts: Any = None
    if isinstance(x, tuple) and len(x) == 2 and not isinstance(x, PaddedBags):
        pairs, contexts = x
    found = _read_teams(pairs, name) if isinstance(pairs, PaddedBags) else _read_array(pairs, name)
    points = jax.tree.leaves(found)[0]
    if schema is not None and points.shape[-1] != schema.num_features:
        raise ValueError(f"`{name}` must have items with {schema.num_features} features, got shape {points.shape}")
    if contexts is None:
        return found
    table = as_points(contexts, f"{name}[1]")
    check_same_rows(points.shape[0], table.shape[0], f"{name}[0]", f"{name}[1]")
    return found, table


def _read_array(pairs: object, name: str) -> Float[Array, "m 2 d"]:
    found = as_finite_array(pairs, name)
    if found.ndim != 3 or found.shape[1] != 2 or 0 in found.shape:
        raise ValueError(
            f"`{name}` must hold pairs of items, an array of shape (m, 2, d), got shape {found.shape}; "
            "`jnp.stack([first, second], axis=1)` makes pairs of two arrays (m, d)"
        )
    return found


def _read_teams(pairs: PaddedBags, name: str) -> PaddedBags:
    points, lengths = as_finite_array(pairs.points, name), jnp.asarray(pairs.lengths)
    if points.ndim != 4 or points.shape[1] != 2 or points.shape[:2] != lengths.shape:
        raise ValueError(
            f"`{name}` must hold pairs of teams, points (m, 2, L, d) and lengths (m, 2), got shapes {points.shape} and "
            f"{lengths.shape}; `PaddedBags.pair` makes pairs of two batches of teams"
        )
    return PaddedBags(points, lengths)


def plain_inputs(matches: Matches) -> Any:
    """Return the inputs of a kernel with plain tuples in place of `PaddedBags`, so that a fit can be saved."""
    is_team = lambda node: isinstance(node, PaddedBags)  # noqa: E731
    return jax.tree.map(lambda node: tuple(node) if is_team(node) else node, matches.inputs, is_leaf=is_team)


def check_same_items(x: Points, known: Points) -> None:
    """Raise ValueError unless pairs, or items, have the columns and contexts of those of the fit."""
    shapes = [[_without_size(leaf.shape[1:]) for leaf in jax.tree.leaves(part)] for part in (x, known)]
    if shapes[0] != shapes[1]:
        teams = len(shapes[1][0]) == 3
        contexts = len(shapes[1]) > 1 + teams
        points = "items" if len(shapes[1][0]) == 1 else "pairs"
        raise ValueError(
            f"`x` must hold {points}{' of teams (`kpp.kernels.toolkit.PaddedBags`)' if teams else ''}"
            f"{' and contexts' if contexts else ''} of shapes {[('p', *shape) for shape in shapes[1]]} as in the "
            f"data fitted to, got {[leaf.shape for leaf in jax.tree.leaves(x)]}"
        )


def _without_size(shape: tuple[int, ...]) -> tuple[int | str, ...]:
    """Return the shape of a pair without the number L of rows of a team, (2, L, d), which may vary."""
    return (shape[0], "L", shape[2]) if len(shape) == 3 else shape


def resolve_names(kernel: AbstractKernel, matches: Matches | Rankings) -> AbstractKernel:
    """Resolve the names of features in a kernel on pairs or items, and those of contexts in context kernels."""

    def resolve(node: object) -> Any:
        if not isinstance(node, Contextual):
            return node
        items = resolve_features(node.kernel, matches.feature_names)
        return Contextual(items, resolve_features(node.context_kernel, matches.context_names))

    if matches.contexts is None:
        return resolve_features(kernel, matches.feature_names)
    return jax.tree.map(resolve, kernel, is_leaf=lambda node: isinstance(node, Contextual))


def refuse_codes(kernel: AbstractKernel, matches: Matches | Rankings) -> None:
    """Raise ValueError if a kernel on pairs or items reads a category of the items, or of the contexts, as a number."""
    check_categories(kernel, matches.schema, points="items")
    for node in jax.tree.leaves(kernel, is_leaf=lambda node: isinstance(node, Contextual)):
        if isinstance(node, Contextual) and matches.contexts is not None:
            check_categories(node.context_kernel, matches.context_schema, "context_kernel", "contexts")


def place_inducing_pairs(inputs: Points, num: int, seed: int, kernel: AbstractKernel) -> Points:
    """Place inducing pairs (num, 2, d) by k-means on the pairs, with their contexts if they have any.

    The items of every pair are put into lexicographic order, so that the order in which they were given does not
    matter. Codes of categories, which the kernel does not read as numbers, are codes of a known pair. If there are
    exactly `num` different pairs, they are the inducing pairs; ValueError is raised if there are fewer.
    """
    pairs, contexts = inputs if isinstance(inputs, tuple) else (inputs, None)
    known = np.asarray(pairs)
    num_features = known.shape[2]
    table, _ = orient_rows(known.reshape(len(known), -1))
    codes = code_columns(kernel, known.reshape(-1, num_features))
    codes = (*codes, *(num_features + j for j in codes))  # the columns of the second item follow
    if contexts is not None:
        table = np.concatenate([table, np.asarray(contexts)], axis=1)
        codes = (*codes, *(2 * num_features + j for j in _codes_of_contexts(kernel, np.asarray(contexts))))
    centers = jnp.asarray(k_means_centers(table, num, seed, codes), known.dtype)
    chosen = centers[:, : 2 * num_features].reshape(-1, 2, num_features)
    return chosen if contexts is None else (chosen, centers[:, 2 * num_features :])


def swap_rows(X: np.ndarray) -> np.ndarray:
    """Return rows (N, 2 d) with their items exchanged."""
    first, second = np.split(X, 2, axis=1)
    return np.concatenate([second, first], axis=1)


def orient_rows(X: np.ndarray) -> tuple[np.ndarray, Float[np.ndarray, " N"]]:
    """Put the items of each row (N, 2 d) into lexicographic order, and return the rows and their signs.

    The sign is 1 if the row is unchanged, -1 if the items were exchanged, and 0 for an item with itself.
    """
    first, second = np.split(X, 2, axis=1)
    differs: Bool[np.ndarray, "N d"] = first != second
    at = np.argmax(differs, axis=1)[:, None]
    exchanged = np.take_along_axis(first > second, at, axis=1)[:, 0]
    signs = np.where(exchanged, -1.0, 1.0) * differs.any(axis=1)
    return np.where(exchanged[:, None], swap_rows(X), X), signs


def _codes_of_contexts(kernel: AbstractKernel, contexts: np.ndarray) -> list[int]:
    """Return the columns of contexts that every kernel of contexts takes as codes."""
    nodes = jax.tree.leaves(kernel, is_leaf=lambda node: isinstance(node, Contextual))
    found = [set(code_columns(node.context_kernel, contexts)) for node in nodes if isinstance(node, Contextual)]
    return sorted(set.intersection(*found)) if found else []


def example_matches(rng_key: RngKey) -> tuple[Float[Array, "12 2 2"], Float[Array, " 12"]]:
    """Return 12 pairs of items with two features, and who won, for the conformance suite."""
    first, second = jax.random.split(rng_key)
    pairs = jax.random.uniform(first, (12, 2, 2), minval=-2.0, maxval=2.0)
    return pairs, jax.random.bernoulli(second, 0.5, (12,)).astype(pairs.dtype)


def _count(x: object, y: Numbers | None, ties: bool) -> Matches:
    inputs = read_pairs(x, None)
    pairs, contexts = inputs if isinstance(inputs, tuple) else (inputs, None)
    if y is None:
        raise ValueError("`y` must give the outcomes of the pairs `x`, 1 where the first item won and 0 where it lost")
    outcomes = as_targets(y)
    check_same_rows(pairs.shape[0], outcomes.shape[0], "x", "y")
    items, numbers = distinct_items(pairs)
    tie = None if not ties else 0.0 if bool((np.asarray(outcomes) < 0).any()) else 0.5
    return Matches.create(items, numbers[:, 0], numbers[:, 1], np.asarray(outcomes), contexts, tie=tie)
