r"""Rankings of several items, best first, and choices of the best item of a set.

A ranking says which items were compared and in which order they came. It may be partial: of a set of L items only the
best R are in order, and all others came after them. A choice is a partial ranking with R = 1, and a match is a ranking
of two items.

A ranking may have a context, such as the judge or the occasion. Models then have a utility of an item in a context.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kpp.data.tables import read_points
from kpp.foundation.validation import check_array, check_same_rows, refuse_masked
from kpp.preferences import _reading
from kpp.preferences._reading import AbstractDescribedItems, distinct_contexts
from kpp.preferences.matches import Matches
from kpp.storage.serialization import data_class
from kpp.typing import RngKey

_PADDING = -1  # in place of an item or a position


@data_class
class Rankings(AbstractDescribedItems):
    """Rankings of items, possibly partial; built by `Rankings.create` and the other constructors.

    Args:
        items: The n items, (n, d). Items that are in no ranking are allowed.
        candidates: The numbers of the items of each of m rankings in increasing order, (m, L), and -1 beyond their
            number.
        order: The positions among the candidates of the best, the second-best, ... item, (m, R), and -1 beyond the
            number of items whose order is known.
        contexts: The circumstances of each ranking, such as the judge, (m, c), or None.
        item_names, feature_names, levels, booleans, context_names, context_levels, context_booleans: As for `Matches`.

    Example:
        >>> from kpp.preferences import Rankings
        >>> Rankings.create(items, [[0, 1, 2], [4, 3, 2]])
        Rankings(5 items, 2 rankings of 3 to 3 items)
    """

    items: Float[Array, "n d"]
    candidates: Int[Array, "m L"]
    order: Int[Array, "m R"]
    contexts: Float[Array, "m c"] | None = None

    def __check_init__(self) -> None:
        for name in ("items", "candidates", "order"):
            check_array(getattr(self, name), name, 2)
        if self.contexts is not None:
            check_array(self.contexts, "contexts", 2)

    def __repr__(self) -> str:
        """Return the numbers of items and rankings, and the sizes of the sets."""
        sizes = (self.candidates >= 0).sum(axis=1)
        return f"Rankings({self.num_items} items, {self.num_rankings} rankings of {sizes.min()} to {sizes.max()} items)"

    @classmethod
    def create(
        cls, items: object, rankings: Iterable[Any], others: Iterable[Any] | None = None, contexts: object = None
    ) -> Rankings:
        """Read rankings given by item numbers.

        Args:
            items: n items, an array (n, d) or a data frame, all of whose columns describe them.
            rankings: For each of m rankings the numbers of its items, the best first.
            others: For each ranking the numbers of the items that came after all of these, in an unknown order; by
                default none, so that rankings are complete.
            contexts: The context of each ranking, an array (m, c) or a data frame; None for no contexts.

        Returns:
            The rankings.

        Raises:
            ValueError: If an item does not exist or is twice in one ranking, fewer than two items are compared, or the
                numbers of rankings, or of contexts, differ.
        """
        points, schema = read_points(items, "items")
        ranked = [_numbers(row, "rankings", number) for number, row in enumerate(rankings)]
        if not ranked:
            raise ValueError("`rankings` must hold at least one ranking, got none")
        rest = [np.zeros(0, int)] * len(ranked)
        if others is not None:
            rest = [_numbers(row, "others", number) for number, row in enumerate(others)]
            check_same_rows(len(ranked), len(rest), "rankings", "others")
        candidates, order = _tabulate(ranked, rest, len(points))
        fields, _ = _reading.read_items(points, schema, contexts, len(ranked), "rankings")
        return cls(candidates=jnp.asarray(candidates, int), order=jnp.asarray(order, int), **fields)

    @classmethod
    def from_choices(
        cls, items: object, sets: Iterable[Any], chosen: Sequence[int] | np.ndarray, contexts: object = None
    ) -> Rankings:
        """Read choices of the best item of a set.

        Args:
            items: n items, as for `create`.
            sets: For each of m choices the numbers of the items that were offered.
            chosen: The number of the item that was chosen, (m,).
            contexts: The context of each choice, as for `create`.

        Returns:
            The choices.

        Raises:
            ValueError: If a chosen item was not offered; also as for `create`.
        """
        offered = [_numbers(row, "sets", number) for number, row in enumerate(sets)]
        picked = _reading.numbers_of(chosen, "chosen")
        check_same_rows(len(offered), len(picked), "sets", "chosen")
        for row, (numbers, item) in enumerate(zip(offered, picked, strict=True)):
            if item not in numbers:
                raise ValueError(
                    f"`chosen` must be items of their `sets`, got {item} of {numbers.tolist()} in row {row}"
                )
        others = [numbers[numbers != item] for numbers, item in zip(offered, picked, strict=True)]
        return cls.create(items, picked[:, None], others, contexts)

    @classmethod
    def from_tables(
        cls,
        items: object,
        rankings: Any,
        *,
        ranking: str = "ranking",
        item: str = "ID",
        rank: str = "rank",
        features: Sequence[str] | None = None,
        contexts: Sequence[str] = (),
    ) -> Rankings:
        """Read a table of items and a table with one row for each item of each ranking.

        Args:
            items: A data frame with one row per item, or an array (n, d), whose items are named by their numbers.
            rankings: A data frame with one row for each item of each ranking.
            ranking: The column of `rankings` that names the ranking.
            item: The column of `items` and of `rankings` that names the item.
            rank: The column of `rankings` with the rank of the item, 1 for the best. It is missing (NaN) for items that
                came after all others; in choices, for all items but one.
            features: The columns of `items` that describe it; by default all others.
            contexts: The columns of `rankings` that hold the context; they must be constant within a ranking.

        Returns:
            The rankings, in the order of their first rows, with the names of items, features and contexts.

        Raises:
            ValueError: If a column is missing, a name is unknown, the ranks of a ranking are not 1, 2, ..., R, or a
                context changes within a ranking.
        """
        table, names = _reading.item_table(items, item, features)
        numbers = _reading.look_up(rankings, item, names, "rankings")
        labels = _reading.labels(rankings, ranking, "rankings")
        ranks = np.asarray(_reading.columns(rankings, [rank], "rankings")[rank], dtype=float)
        context, described = _reading.constant_contexts(rankings, contexts, "rankings", labels, "ranking")
        _, first, codes = np.unique(labels, return_index=True, return_inverse=True)
        ranked, others = [], []
        for code in np.argsort(first, kind="stable"):
            rows = np.flatnonzero(codes.ravel() == code)
            known = rows[~np.isnan(ranks[rows])]
            sorted_rows = known[np.argsort(ranks[known], kind="stable")]
            if not np.array_equal(ranks[sorted_rows], np.arange(1.0, len(known) + 1.0)) or not len(known):
                raise ValueError(
                    f"`rankings` must have the ranks 1, 2, ... in column {rank!r}, each once, got "
                    f"{ranks[sorted_rows].tolist()} in ranking {labels[rows[0]]!r}"
                )
            ranked.append(numbers[sorted_rows])
            others.append(numbers[np.setdiff1d(rows, known)])
        found = cls.create(table, ranked, others, None if context is None else context[np.sort(first)])
        return dataclasses.replace(found, item_names=tuple(map(str, names)), **described)

    @classmethod
    def from_matches(cls, matches: Matches) -> Rankings:
        """Return each match as a ranking of two items.

        Args:
            matches: Matches without ties, possibly with contexts.

        Returns:
            The rankings, in the order of `Matches.single_matches`.

        Raises:
            ValueError: If there are ties, or the items are teams.
        """
        matches.refuse_teams("Rankings.from_matches")
        rows, y = matches.single_matches()
        if (y == 0.5).any():
            raise ValueError(f"`matches` must have no ties, for which rankings have no place, got {(y == 0.5).sum()}")
        pairs = np.asarray(matches.pairs)[rows]
        return cls(
            items=matches.items,
            candidates=jnp.asarray(pairs),
            order=jnp.asarray(np.where(y == 1.0, 0, 1)[:, None]),
            contexts=None if matches.contexts is None else jnp.asarray(np.asarray(matches.contexts)[rows]),
            **matches.description(),
        )

    def with_order(self, order: object) -> Rankings:
        """Return rankings of the same sets in other orders.

        Args:
            order: The positions among the candidates of the best, the second-best, ... item, (m, R), in the form of the
                field `order`, such as a draw of a posterior predictive.

        Raises:
            ValueError: If the numbers of ranked items differ, or a position is twice in one ranking or does not exist.
        """
        found, known = np.asarray(order), np.asarray(self.order)
        sizes = np.asarray((self.candidates >= 0).sum(axis=1))[:, None]
        real = found.dtype.kind in "iuf"
        if not real or found.shape != known.shape or not (np.isfinite(found) & (found == np.round(found))).all():
            raise ValueError(
                f"`y` must hold positions of ranked items, whole numbers {known.shape}, got shape {found.shape} and "
                f"dtype {found.dtype}"
            )
        ranked = found >= 0
        twice = (np.diff(np.sort(found, axis=1), axis=1) == 0) & (np.sort(found, axis=1)[:, 1:] >= 0)
        if (ranked != (known >= 0)).any() or (found >= sizes).any() or twice.any():
            raise ValueError(
                "`y` must hold different positions below the number of candidates, and -1 where `x` has -1"
            )
        return dataclasses.replace(self, order=jnp.asarray(found, int))

    @property
    def points(self) -> Any:
        """The p points at which models have utilities: the items, or the tuple of `options`. Not traceable by JAX."""
        return self.options()[0]

    def options(self) -> tuple[Any, Int[Array, "m L"]]:
        """Return the different combinations of an item and a context in which it is ranked. Not traceable by JAX.

        Returns:
            The combinations as a tuple of items (p, d) and contexts (p, c), and the number of the combination of each
            candidate, (m, L), -1 beyond their number. Without contexts, the items and the candidates themselves.
        """
        if self.contexts is None:
            return self.items, self.candidates
        contexts, of_ranking = distinct_contexts(self.contexts)
        candidates = np.asarray(self.candidates)
        rows, places = np.nonzero(candidates >= 0)
        keys = np.stack([candidates[rows, places], of_ranking[rows]], axis=1)
        distinct, numbers = np.unique(keys, axis=0, return_inverse=True)
        renumbered = np.full_like(candidates, _PADDING)
        renumbered[rows, places] = numbers.ravel()
        points = (np.asarray(self.items)[distinct[:, 0]], contexts[distinct[:, 1]])
        return jax.device_put(points), jax.device_put(renumbered)

    @property
    def num_items(self) -> int:
        """The number of items, n."""
        return self.items.shape[0]

    @property
    def num_rankings(self) -> int:
        """The number of rankings, m."""
        return self.candidates.shape[0]

    def take(self, rows: Sequence[int] | Int[Any, " k"]) -> Rankings:
        """Return some of the rankings, with all items.

        Args:
            rows: Their numbers, (k,).

        Raises:
            ValueError: If a ranking does not exist.
        """
        chosen = _reading.numbers_of(rows, "rows")
        if (chosen < 0).any() or (chosen >= self.num_rankings).any():
            raise ValueError(f"`rows` must be numbers from 0 to {self.num_rankings - 1}, got {chosen[:5]}")
        parts = (self.candidates, self.order, self.contexts)
        candidates, order, contexts = jax.tree.map(lambda part: jax.device_put(np.asarray(part)[chosen]), parts)
        return dataclasses.replace(self, candidates=candidates, order=order, contexts=contexts)

    def split(self, rng_key: RngKey, train_fraction: float) -> tuple[Rankings, Rankings]:
        """Split the rankings at random, into a training part and a test part. Not traceable by JAX.

        Args:
            rng_key: A JAX random key.
            train_fraction: The fraction of the rankings in the training part, between 0 and 1.

        Returns:
            The training part and the test part; each has all items.

        Raises:
            ValueError: If a part would be empty.
        """
        size = round(train_fraction * self.num_rankings) if 0 < train_fraction < 1 else 0
        if not 0 < size < self.num_rankings:
            raise ValueError(
                f"`train_fraction` must leave something in both parts of {self.num_rankings} rankings, got "
                f"{train_fraction}"
            )
        shuffled = np.asarray(jax.random.permutation(rng_key, self.num_rankings))
        return self.take(np.sort(shuffled[:size])), self.take(np.sort(shuffled[size:]))


def _numbers(row: Any, name: str, number: int) -> np.ndarray:
    """Return the item numbers of one ranking, possibly none."""
    refuse_masked(row, name)
    array = np.asarray(row)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(
            f"`{name}` must hold lists of item numbers, got shape {array.shape} and dtype {array.dtype} in row {number}"
        )
    return array.astype(np.int64)


def _tabulate(
    ranked: list[np.ndarray], others: list[np.ndarray], num_items: int
) -> tuple[Int[np.ndarray, "m L"], Int[np.ndarray, "m R"]]:
    """Return the candidates in increasing order and the positions of the ranked items, padded with -1."""
    sets = [np.sort(np.concatenate(pair)) for pair in zip(ranked, others, strict=True)]
    for row, numbers in enumerate(sets):
        _check_set(numbers, ranked[row], num_items, row)
    candidates = np.full((len(sets), max(map(len, sets))), _PADDING)
    # The last item of a complete ranking adds nothing: there is no other one to choose.
    known = [min(len(best), len(numbers) - 1) for best, numbers in zip(ranked, sets, strict=True)]
    order = np.full((len(sets), max(known)), _PADDING)
    for row, (numbers, best, num_known) in enumerate(zip(sets, ranked, known, strict=True)):
        candidates[row, : len(numbers)] = numbers
        order[row, :num_known] = np.searchsorted(numbers, best[:num_known])
    return candidates, order


def _check_set(numbers: np.ndarray, best: np.ndarray, num_items: int, row: int) -> None:
    """Raise ValueError unless a set has two or more different items that exist, and one of them is ranked."""
    if len(numbers) < 2 or not len(best):
        raise ValueError(f"`rankings` must compare two items or more, and rank one, got {best.tolist()} in row {row}")
    if numbers[0] < 0 or numbers[-1] >= num_items:
        raise ValueError(
            f"`rankings` must hold numbers from 0 to {num_items - 1}, rows of `items`, got {numbers.tolist()} in row "
            f"{row}"
        )
    if (np.diff(numbers) == 0).any():
        raise ValueError(f"`rankings` must hold each item once, got {numbers.tolist()} in row {row}")
