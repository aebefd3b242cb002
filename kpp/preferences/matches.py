r"""Matches: which of two items was preferred, how often, and the features of the items.

"x beat :math:`x'`" and ":math:`x'` lost to x" are the same fact, and `Matches` stores it once. Every pair is written
with the lower item number first, matches of the same pair (in the same context) are counted in one row, and rows are
sorted. So results do not depend, not even in rounding errors, on the order of the matches or on which item of a match
is named first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kpp.data.tables import Schema, as_frame, read_points
from kpp.foundation.validation import check_array, check_same_rows, is_concrete, one_of
from kpp.kernels import pad_bags
from kpp.kernels.toolkit import PaddedBags
from kpp.preferences import _reading
from kpp.preferences._reading import AbstractDescribedItems, described_by
from kpp.runtime.notebook import Html, escaped, panel, table
from kpp.storage.serialization import data_class
from kpp.typing import AnyArray, Numbers, RngKey


def _as_items(items: Any) -> Any:
    """Return teams, a tuple of members and sizes, as `PaddedBags`, and rows unchanged."""
    return PaddedBags(*map(jnp.asarray, items)) if isinstance(items, tuple) else items


@data_class
class Matches(AbstractDescribedItems):
    """Counts of matches between pairs of items; built by `Matches.create` and the other constructors.

    Args:
        items: The n items, (n, d); or n teams, `kpp.kernels.toolkit.PaddedBags` whose points are their members. Items
            without a match are allowed.
        pairs: The item numbers of each of m different pairs, (m, 2), the lower number first.
        wins: How often the first item of each pair won, (m,).
        losses: How often the first item lost, (m,).
        ties: How often there was a tie, (m,).
        contexts: The circumstances of each row of matches, such as the judge or the surface, (m, c), or None. A pair
            has one row per different context.
        item_names: The names of the n items.
        feature_names: The names of the columns of `items`.
        levels: The text columns of `items`, with their levels in the order of their codes.
        context_names: The names of the columns of `contexts`.
        context_levels: The text columns of `contexts`, with their levels.
        booleans: The columns of booleans of `items`, which are read as the numbers 0 and 1.
        context_booleans: The columns of booleans of `contexts`.

    Example:
        >>> kpp.preferences.Matches.create(x, first=[0, 1], second=[1, 2], y=[1, 0])
        Matches(20 items, 2 pairs, 2 matches, items=Schema(x0, x1))
    """

    items: Any = eqx.field(converter=_as_items)
    pairs: Int[Array, "m 2"]
    wins: Float[Array, " m"]
    losses: Float[Array, " m"]
    ties: Float[Array, " m"]
    contexts: Float[Array, "m c"] | None = None

    def __check_init__(self) -> None:
        for name, ndim in (("pairs", 2), ("wins", 1), ("losses", 1), ("ties", 1)):
            check_array(getattr(self, name), name, ndim)
        if self.has_teams:
            check_array(self.items[0], "items", 3)
        else:
            check_array(self.items, "items", 2)
        if self.contexts is not None:
            check_array(self.contexts, "contexts", 2)
        if is_concrete(self.pairs):
            low, high = np.asarray(self.pairs).T
            if not ((low >= 0) & (low < high) & (high < self.num_items)).all():
                raise ValueError(
                    f"`pairs` must hold two different numbers of the {self.num_items} items, the lower first, got "
                    f"numbers from {min(low.min(), high.min())} to {max(low.max(), high.max())}; `Matches.create` "
                    "takes matches in any form"
                )

    def __repr__(self) -> str:
        """Return the numbers of items, pairs and matches, and the columns with their first levels."""
        if not self._has_values():
            return super().__repr__()  # inside a transformation of JAX, where leaves can be anything
        parts = [f"{self.num_items} items, {len(self.pairs)} pairs, {float(self.num_matches):g} matches"]
        parts += [f"items={Schema(self.feature_names, dict(self.levels))}"] if self.feature_names else []
        parts += [f"contexts={Schema(self.context_names, dict(self.context_levels))}"] if self.context_names else []
        return f"Matches({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """Return a summary for notebooks."""
        return matches_html(self) if self._has_values() else escaped(repr(self))

    def _has_values(self) -> bool:
        """Return whether all leaves are arrays of known values; JAX may put anything in their places."""
        leaves = jax.tree.leaves(self)
        return all(isinstance(leaf, (jax.Array, np.ndarray)) and is_concrete(leaf) for leaf in leaves)

    @classmethod
    def create(
        cls,
        items: object,
        first: Numbers,
        second: Numbers,
        y: Numbers | None = None,
        contexts: object = None,
        *,
        tie: float | int | None = None,
    ) -> Matches:
        """Count matches given by item numbers and labels.

        Args:
            items: n items, an array (n, d) or a data frame, all of whose columns describe them.
            first: The number of the first item of each of N matches, (N,), from 0 to n - 1.
            second: The number of the second item, (N,).
            y: The outcome of each match, (N,): 1 if the first item won and 0 (or -1, the same code for all matches) if
                it lost. By default the first item won every match.
            contexts: The context of each match, an array (N, c) or a data frame; None for no contexts.
            tie: The label of a tie, such as 0.5 with labels 0 and 1, or 0 with labels -1 and 1. By default there are no
                ties.

        Returns:
            The matches.

        Raises:
            ValueError: If an item is matched with itself or does not exist, a label is unknown, values are missing, or
                rows do not match.
        """
        first = _reading.numbers_of(first, "first")
        outcomes = np.ones(len(first)) if y is None else _reading.outcomes(y, tie)
        check_same_rows(len(first), len(outcomes), "first", "y")
        wins, losses, ties = (outcomes == value for value in (1.0, 0.0, 0.5))
        return cls.from_counts(items, first, second, wins, losses, ties, contexts)

    @classmethod
    def from_counts(
        cls,
        items: object,
        first: Numbers,
        second: Numbers,
        wins: Numbers,
        losses: Numbers,
        ties: Numbers | None = None,
        contexts: object = None,
    ) -> Matches:
        """Build matches from counts.

        Args:
            items: n items, an array (n, d) or a data frame, all of whose columns describe them.
            first: The number of the first item of each of N pairs, (N,). Pairs may occur repeatedly.
            second: The number of the second item, (N,).
            wins: How often the first item won, (N,).
            losses: How often the first item lost, (N,).
            ties: How often there was a tie, (N,); by default never.
            contexts: An array (N, c) or a data frame, or None.

        Returns:
            The matches.

        Raises:
            ValueError: As for `create`; also if counts are negative or not whole, or all counts of a row are 0.
        """
        points, schema = read_points(items, "items")
        firsts = _reading.numbers_of(first, "first")
        numbers = np.stack([firsts, _reading.numbers_of(second, "second", len(firsts))], axis=1)
        counts = _reading.counts(wins, losses, ties, len(numbers))
        fields, table = _reading.read_items(points, schema, contexts, len(numbers), "first")
        _reading.refuse_impossible(numbers, len(points))
        pairs, counts, table = _reading.consolidate(numbers, counts, table)
        fields["contexts"] = None if table is None else jnp.asarray(table, float)
        wins, losses, ties = (jnp.asarray(column, float) for column in counts.T)
        return cls(pairs=jnp.asarray(pairs, int), wins=wins, losses=losses, ties=ties, **fields)

    @classmethod
    def from_tables(
        cls,
        items: object,
        matches: object,
        *,
        winner: str = "winner",
        loser: str = "loser",
        item: str = "ID",
        features: Sequence[str] | None = None,
        contexts: Sequence[str] = (),
        tie: str | None = None,
        users: object = None,
        user: str = "user",
    ) -> Matches:
        """Read a table of items and a table of matches.

        Args:
            items: A data frame with one row per item, or an array (n, d), whose items are named by their numbers.
            matches: A data frame with one row per match.
            winner: The column of `matches` that names the winner.
            loser: The column of `matches` that names the loser.
            item: The column of `items` that names the item.
            features: The columns of `items` that describe it; by default all others but text columns with a level for
                each of at least 10 rows, such as names, which are left out with a warning.
            contexts: The columns of `matches` that hold the context.
            tie: The column of `matches` that is 1 for a tie and 0 otherwise; for a tie it does not matter which item is
                named as the winner. By default there are no ties.
            users: A data frame with one row for each member of a crowd who judges matches; the context of a match is
                then the features of its user, in place of `contexts`.
            user: The column of `users` and of `matches` that names the user.

        Returns:
            The matches, with the names of items, features and contexts.

        Raises:
            ValueError: If a column is missing, or a name is unknown or belongs to two items; also as for `create`.
        """
        table, names = _reading.item_table(items, item, features)
        first, second = (_reading.look_up(matches, column, names, "matches") for column in (winner, loser))
        tied = np.zeros(len(first)) if tie is None else _reading.flags(matches, tie, "matches")
        context_table = _reading.columns(matches, contexts, "matches")
        if users is not None:
            context_table = _reading.users_of(matches, users, user, contexts)
        found = cls.create(table, first, second, 1.0 - tied / 2, context_table, tie=0.5)
        return dataclasses.replace(found, item_names=tuple(map(str, names)))

    @classmethod
    def from_teams(
        cls,
        members: object,
        teams: Sequence[Any],
        first: Numbers,
        second: Numbers,
        y: Numbers | None = None,
        contexts: object = None,
        *,
        tie: float | int | None = None,
    ) -> Matches:
        """Count matches between teams, each of which is a set of rows of a table of members.

        Args:
            members: The features of all possible members, an array (n, d) or a data frame.
            teams: For each of T teams the numbers of its members, rows of `members`. Teams may differ in size and share
                members.
            first: The number of the first team of each of N matches, (N,), from 0 to T - 1.
            second: The number of the second team, (N,).
            y: The outcome of each match, as for `create`.
            contexts: The context of each match, as for `create`.
            tie: The label of a tie, as for `create`.

        Returns:
            The matches, whose items are the teams and whose features are those of the members.

        Raises:
            ValueError: If a team is empty or names a member that does not exist; also as for `create`.
        """
        points, schema = read_points(members, "members")
        rows = [_reading.numbers_of(team, "teams") for team in teams]
        wrong = [number for number, team in enumerate(rows) if (team < 0).any() or (team >= len(points)).any()]
        if wrong:
            raise ValueError(
                f"`teams` must hold numbers from 0 to {len(points) - 1}, rows of `members`, got "
                f"{rows[wrong[0]].tolist()} for team {wrong[0]}"
            )
        counted = cls.create(np.arange(float(len(rows)))[:, None], first, second, y, contexts, tie=tie)
        return dataclasses.replace(counted, items=pad_bags([points[team] for team in rows]), **described_by(schema))

    @classmethod
    def from_table(
        cls,
        matches: object,
        *,
        winner: str = "winner_",
        loser: str = "loser_",
        contexts: Sequence[str] = (),
        tie: str | None = None,
    ) -> Matches:
        """Read one table of matches, whose columns describe the winner and the loser of each match.

        Args:
            matches: A data frame with one row per match.
            winner: The prefix of the columns with the features of the winner, such as ``winner_`` for ``winner_age``.
                Or a column with the name of the winner; items then have one feature, the category ``item``.
            loser: The prefix, or the column, of the loser; the features must be the same.
            contexts: The columns that hold the context.
            tie: The column that is 1 for a tie and 0 otherwise; by default there are no ties.

        Returns:
            The matches between the different rows of features, which are the items.

        Raises:
            ValueError: If columns are missing, or the winner and the loser have other features; also as for `create`.
        """
        table = as_frame(matches, "matches")
        sides = [_reading.side(table, prefix) for prefix in (winner, loser)]
        points, schema = _reading.read_sides(*sides)
        items, numbers = np.unique(points, axis=0, return_inverse=True)
        first, second = np.split(numbers.ravel(), 2)
        tied = np.zeros(len(first)) if tie is None else _reading.flags(table, tie, "matches")
        found = cls.create(items, first, second, 1.0 - tied / 2, _reading.columns(table, contexts, "matches"), tie=0.5)
        names = schema.levels.get(_reading.ITEM, found.item_names) if winner in table.columns else found.item_names
        return dataclasses.replace(found, item_names=tuple(map(str, names)), **described_by(schema))

    @classmethod
    def from_sessions(
        cls,
        items: object,
        views: object,
        *,
        session: str = "session",
        item: str = "ID",
        clicked: str = "clicked",
        features: Sequence[str] | None = None,
        contexts: Sequence[str] = (),
    ) -> Matches:
        """Convert views and clicks in sessions into matches: a clicked item beats each item that was only viewed.

        Args:
            items: A data frame with one row per item, or an array (n, d), whose items are named by their numbers.
            views: A data frame with one row for each item shown in each session. Sessions in which all items or none
                were clicked give no matches.
            session: The column of `views` that names the session.
            item: The column of `items` and of `views` that names the item. An item shown repeatedly in a session is
                counted once; it is clicked if it was clicked at least once.
            clicked: The column of `views` that is 1 if the item was clicked and 0 otherwise.
            features: The columns of `items` that describe it; by default all others.
            contexts: The columns of `views` that describe the session; they must be constant within a session.

        Returns:
            The matches, with the names of items, features and contexts.

        Raises:
            ValueError: If no session gives a match, or a context changes within a session; also as for `from_tables`.
        """
        table, names = _reading.item_table(items, item, features)
        shown = _reading.look_up(views, item, names, "views")
        label = _reading.labels(views, session, "views")
        chosen = _reading.flags(views, clicked, "views") == 1.0
        first, second, row = _reading.comparisons(label, shown, chosen)
        context, described = _reading.constant_contexts(views, contexts, "views", label, "session")
        found = cls.create(table, first, second, contexts=None if context is None else context[row])
        return dataclasses.replace(found, item_names=tuple(map(str, names)), **described)

    @property
    def has_teams(self) -> bool:
        """Whether the items are teams, and `feature_names` are those of their members."""
        return isinstance(self.items, PaddedBags)

    def refuse_teams(self, where: str) -> None:
        """Raise ValueError if the items are teams, for which a model or function has no place.

        Args:
            where: The name of the model or function.
        """
        if self.has_teams:
            raise ValueError(
                f"`matches` must be between items described by rows for {where}, got teams; kpp_models.GPGP and PGP "
                "take teams with the kernel BagMean"
            )

    @property
    def num_items(self) -> int:
        """The number of items, n."""
        return jax.tree.leaves(self.items)[0].shape[0]

    @property
    def num_pairs(self) -> int:
        """The number m of rows, which are different pairs, or pairs in different contexts."""
        return self.pairs.shape[0]

    @property
    def num_matches(self) -> int:
        """The number of matches, N, the sum of all counts. Not traceable by JAX."""
        return int(np.asarray(self.counts).sum())

    @property
    def counts(self) -> Float[Array, " m"]:
        """The number of matches of each row, (m,)."""
        return _without_compiling(lambda wins, losses, ties: wins + losses + ties, self.wins, self.losses, self.ties)

    @property
    def points(self) -> Any:
        """The items of each pair, (m, 2, d), the inputs of kernels on pairs.

        For teams it is `kpp.kernels.toolkit.PaddedBags`: their members (m, 2, L, d) and sizes (m, 2).
        """

        def take(leaf: Array) -> Array:
            return _without_compiling(lambda items, pairs: items[pairs], leaf, self.pairs)

        return jax.tree.map(take, self.items)

    @property
    def inputs(self) -> Any:
        """The inputs of a kernel: `points`, or ``(points, contexts)`` if there are contexts."""
        return self.points if self.contexts is None else (self.points, self.contexts)

    def single_matches(self) -> tuple[Int[np.ndarray, " N"], Float[np.ndarray, " N"]]:
        """Return the matches one by one, as classifiers and their scores need them. Not traceable by JAX.

        Returns:
            The row of each match, (N,), and its outcome for the first item of the pair, (N,): 1, 0 or, for a tie, 0.5.
        """
        counts = np.stack([self.wins, self.losses, self.ties], axis=1).astype(int)
        rows = np.repeat(np.arange(self.num_pairs), counts.sum(axis=1))
        return rows, np.repeat(np.tile([1.0, 0.0, 0.5], self.num_pairs), counts.ravel())

    def split(self, rng_key: RngKey, train_fraction: float, *, by: str = "match") -> tuple[Matches, Matches]:
        """Split the matches at random, into a training part and a test part. Not traceable by JAX.

        No match is in both parts, also not with its items exchanged.

        Args:
            rng_key: A JAX random key.
            train_fraction: The fraction of matches or pairs in the training part, between 0 and 1.
            by: "match" assigns single matches, so that a pair may be in both parts; "pair" keeps all matches of a pair
                together, so that all test pairs are new.

        Returns:
            The training part and the test part; each has all items.

        Raises:
            ValueError: If `by` is unknown, or a part would be empty.
        """
        one_of(by, "by", ("match", "pair"))
        rows, y = self.single_matches()
        unit = np.arange(len(rows))
        if by == "pair":
            unit = np.unique(np.asarray(self.pairs)[rows], axis=0, return_inverse=True)[1].ravel()
        total = int(unit.max()) + 1
        size = round(train_fraction * total) if 0 < train_fraction < 1 else 0
        if not 0 < size < total:
            raise ValueError(f"`train_fraction` must leave something in both parts of {total}, got {train_fraction}")
        shuffled = np.asarray(jax.random.permutation(rng_key, total))
        chosen = np.isin(unit, shuffled[:size])
        return self._part(rows[chosen], y[chosen]), self._part(rows[~chosen], y[~chosen])

    def take(self, rows: Sequence[int] | Int[Any, " k"]) -> Matches:
        """Return some of the rows of matches.

        Args:
            rows: The numbers of the rows, each at most once, in any order.

        Returns:
            The matches, in the canonical order, with all items.

        Raises:
            ValueError: If a row does not exist or is named twice, or `rows` is empty.
        """
        chosen = np.sort(_reading.numbers_of(rows, "rows"))
        if (chosen < 0).any() or (chosen >= self.num_pairs).any() or (np.diff(chosen) == 0).any():
            raise ValueError(f"`rows` must be different numbers from 0 to {self.num_pairs - 1}, got {chosen[:5]}")
        parts = {name: getattr(self, name) for name in ("pairs", "wins", "losses", "ties", "contexts")}
        taken: dict[str, Any] = jax.tree.map(lambda part: jax.device_put(np.asarray(part)[chosen]), parts)
        return dataclasses.replace(self, **taken)

    def adjacency(self) -> Float[np.ndarray, "n n"]:
        """Return how often each item beat each other item, over all contexts; a tie counts as half a win for both.

        Returns:
            The matrix A, (n, n): the item of the row beat the item of the column A_ij times. Not traceable by JAX.
        """
        matrix = np.zeros((self.num_items, self.num_items))
        low, high = np.asarray(self.pairs).T
        wins, losses, ties = (np.asarray(part) for part in (self.wins, self.losses, self.ties))
        np.add.at(matrix, (low, high), wins + ties / 2)
        np.add.at(matrix, (high, low), losses + ties / 2)
        return matrix

    def dominance(self) -> Float[np.ndarray, "n n"]:
        """Return the 0-1 matrix, (n, n): 1 if the row's item won more often than it lost against the column's item."""
        adjacency = self.adjacency()
        return (adjacency > adjacency.T).astype(float)

    def comparison_matrix(self) -> Float[np.ndarray, "n n"]:
        r"""Return the mean outcome of each pair, :math:`(w_{ij} - w_{ji}) / (w_{ij} + w_{ji})`, 0 without a match.

        Returns:
            The skew-symmetric matrix, (n, n), with entries from -1 to 1; a tie counts as half a win for both.
        """
        adjacency = self.adjacency()
        return (adjacency - adjacency.T) / np.maximum(adjacency + adjacency.T, 1.0)

    def _part(self, rows: Int[np.ndarray, " k"], y: Float[np.ndarray, " k"]) -> Matches:
        """Return the given single matches."""
        wins, losses, ties = (
            jnp.asarray(np.bincount(rows[y == value], minlength=self.num_pairs), self.wins.dtype)
            for value in (1.0, 0.0, 0.5)
        )
        counted = dataclasses.replace(self, wins=wins, losses=losses, ties=ties)
        return counted.take(np.unique(rows))


def _without_compiling(f: Callable[..., AnyArray], *arrays: Array) -> Array:
    """Apply indexing and arithmetic to arrays, by NumPy if none is traced, because JAX compiles for each new shape."""
    if all(is_concrete(array) for array in arrays):
        return jax.device_put(f(*(np.asarray(array) for array in arrays)))
    return jnp.asarray(f(*arrays))


_SHOWN = 8


def matches_html(matches: Any) -> Html:
    """Return a summary of `kpp.preferences.Matches` as HTML; their arrays must not be traced by JAX."""
    low, high = np.asarray(matches.pairs).T
    wins, losses, ties = (np.asarray(part) for part in (matches.wins, matches.losses, matches.ties))
    records = np.zeros((matches.num_items, 3))
    for items, columns in ((low, (wins, losses, ties)), (high, (losses, wins, ties))):
        np.add.at(records, items, np.stack(columns, axis=1))
    most = np.argsort(-records.sum(axis=1), kind="stable")[:_SHOWN]
    names = matches.item_names or tuple(map(str, range(matches.num_items)))
    rows = [(names[item], *(f"{number:g}" for number in (records[item].sum(), *records[item]))) for item in most]
    left_out = matches.num_items - len(most)
    return panel(
        f"Matches: {matches.num_items} items, {matches.num_pairs} pairs, {float(matches.num_matches):g} matches",
        *_columns("features of items", matches.feature_names),
        *_columns("contexts", matches.context_names),
        table(rows, ("item", "matches", "wins", "losses", "ties")),
        *([f"and {left_out} items with fewer matches"] if left_out else []),
    )


def _columns(title: str, names: tuple[str, ...]) -> list[str]:
    return [f"{title}: {', '.join(names)}"] if names else []
