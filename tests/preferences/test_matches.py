"""Matches: each kept once, whichever side and order it was told in, and counted as a dictionary counts them."""

from __future__ import annotations

import json
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from kpp.data.tables import read_points
from kpp.preferences import Matches
from kpp.storage.serialization import from_spec, to_spec

ITEMS = pd.DataFrame({"ID": ["ant", "bee", "cat"], "size": [1.0, 2.0, 30.0], "color": ["red", "black", "red"]})


def same(first: Matches, second: Matches) -> bool:
    """Whether all arrays are bitwise equal, and all names."""
    leaves, others = jax.tree.leaves(first), jax.tree.leaves(second)
    return jax.tree.structure(first) == jax.tree.structure(second) and all(
        np.asarray(leaf).tobytes() == np.asarray(other).tobytes() for leaf, other in zip(leaves, others, strict=True)
    )


def tally(duels, contexts: bool) -> Counter:
    """Count by a dictionary: (low, high, context, outcome for low) -> number."""
    found: Counter = Counter()
    for number, (first, second, y) in enumerate(zip(duels.first, duels.second, duels.y, strict=True)):
        context = float(duels.contexts[number, 0]) if contexts else None
        outcome = y if first < second else 1.0 - y
        found[min(first, second), max(first, second), context, outcome] += 1
    return found


@pytest.mark.parametrize("contexts", [False, True])
def test_matches_are_counted_as_a_dictionary_counts_them(duels, contexts):
    matches = Matches.create(
        duels.items, duels.first, duels.second, duels.y, duels.contexts if contexts else None, tie=0.5
    )
    found: Counter = Counter()
    for row, (low, high) in enumerate(np.asarray(matches.pairs)):
        context = float(matches.contexts[row, 0]) if contexts else None
        for outcome, part in ((1.0, matches.wins), (0.0, matches.losses), (0.5, matches.ties)):
            found[low, high, context, outcome] += int(part[row])
    assert +found == tally(duels, contexts)
    assert matches.num_matches == 60


@pytest.mark.parametrize("contexts", [False, True])
def test_neither_sides_nor_order_change_a_bit(duels, contexts):
    rng = np.random.default_rng(1)
    reference = None
    for trial in range(5):
        swap = rng.random(60) < 0.5 if trial else np.zeros(60, bool)
        order = rng.permutation(60) if trial else np.arange(60)
        matches = Matches.create(
            duels.items,
            np.where(swap, duels.second, duels.first)[order],
            np.where(swap, duels.first, duels.second)[order],
            np.where(swap, 1.0 - duels.y, duels.y)[order],
            duels.contexts[order] if contexts else None,
            tie=0.5,
        )
        reference = matches if reference is None else reference
        assert same(matches, reference)
    pairs = {frozenset(pair) for pair in zip(duels.first.tolist(), duels.second.tolist(), strict=True)}
    assert contexts or reference.num_pairs == len(pairs)


def test_negative_zeros_are_no_other_context(duels):
    one = Matches.create(duels.items, [0, 1], [1, 0], [1, 0], [[0.0], [-0.0]])
    assert one.num_pairs == 1
    assert one.wins.tolist() == [2.0]


@pytest.mark.parametrize(
    ("y", "tie"),
    [
        ([1, 0, 1, 0], None),
        ([1, -1, 1, -1], None),
        ([True, False, True, False], None),
        ([1.0, -1.0, 1.0, -1.0], 0.0),
    ],
)
def test_labels_may_be_zero_or_minus_one(duels, y, tie):
    matches = Matches.create(duels.items, [0, 1, 2, 5], [1, 2, 3, 4], y, tie=tie)
    assert matches.wins.tolist() == [1.0, 0.0, 1.0, 1.0]
    assert matches.losses.tolist() == [0.0, 1.0, 0.0, 0.0]


def test_ties_are_ties_under_either_code(duels):
    zero = Matches.create(duels.items, [0, 1, 2], [1, 2, 0], [1, 0, -1], tie=0)
    half = Matches.create(duels.items, [0, 1, 2], [1, 2, 0], [1, 0.5, 0], tie=0.5)
    counts = Matches.from_counts(duels.items, [0, 1, 2], [1, 2, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0])
    assert same(zero, half) and same(zero, counts)
    assert zero.ties.tolist() == [0.0, 0.0, 1.0]  # rows are (0, 1), (0, 2), (1, 2)


def test_the_first_wins_without_labels(duels):
    assert same(Matches.create(duels.items, [3, 1], [0, 2]), Matches.create(duels.items, [3, 1], [0, 2], [1, 1]))


def test_points_are_the_items_of_each_pair(duels):
    matches = Matches.create(duels.items, duels.first, duels.second, duels.y, duels.contexts, tie=0.5)
    for row, (low, high) in enumerate(np.asarray(matches.pairs)):
        np.testing.assert_array_equal(matches.points[row], duels.items[[low, high]])
    points, contexts = matches.inputs
    np.testing.assert_array_equal(points, matches.points)
    np.testing.assert_array_equal(contexts, matches.contexts)
    assert jax.jit(lambda matches: matches.points.sum())(matches) == pytest.approx(float(matches.points.sum()))


def test_matrices_count_as_a_loop_does(duels):
    matches = Matches.create(duels.items, duels.first, duels.second, duels.y, duels.contexts, tie=0.5)
    wins = np.zeros((6, 6))
    for first, second, y in zip(duels.first, duels.second, duels.y, strict=True):
        wins[first, second] += y
        wins[second, first] += 1.0 - y
    np.testing.assert_array_equal(matches.adjacency(), wins)
    np.testing.assert_array_equal(matches.dominance(), wins > wins.T)
    met = wins + wins.T > 0
    mean = (wins[met] - wins.T[met]) / (wins + wins.T)[met]
    np.testing.assert_array_equal(matches.comparison_matrix()[met], mean)
    assert not matches.comparison_matrix()[~met].any()


def test_single_matches_tell_all_of_them(duels):
    matches = Matches.create(duels.items, duels.first, duels.second, duels.y, tie=0.5)
    rows, y = matches.single_matches()
    low, high = np.asarray(matches.pairs)[rows].T
    assert same(Matches.create(duels.items, low, high, y, tie=0.5), matches)


@pytest.mark.slow_variants("pair")
@pytest.mark.parametrize("by", ["match", "pair"])
def test_both_parts_of_a_split_are_all_matches(duels, by):
    matches = Matches.create(duels.items, duels.first, duels.second, duels.y, duels.contexts, tie=0.5)
    train, test = matches.split(jax.random.key(0), 0.7, by=by)
    parts = [part.single_matches() for part in (train, test)]
    pairs = [np.asarray(part.pairs)[rows] for part, (rows, _) in zip((train, test), parts, strict=True)]
    contexts = [np.asarray(part.contexts)[rows] for part, (rows, _) in zip((train, test), parts, strict=True)]
    low, high = np.concatenate(pairs).T
    y = np.concatenate([y for _, y in parts])
    assert same(Matches.create(duels.items, low, high, y, np.concatenate(contexts), tie=0.5), matches)
    shared = set(map(tuple, pairs[0].tolist())) & set(map(tuple, pairs[1].tolist()))
    if by == "match":
        assert train.num_matches == 42 and shared
    else:
        different = len(np.unique(np.asarray(matches.pairs), axis=0))
        assert len(set(map(tuple, pairs[0].tolist()))) == round(0.7 * different) and not shared


def test_some_rows_are_taken_in_their_order(duels):
    matches = Matches.create(duels.items, duels.first, duels.second, duels.y, duels.contexts, tie=0.5)
    some = matches.take([7, 2, 4])
    np.testing.assert_array_equal(some.pairs, np.asarray(matches.pairs)[[2, 4, 7]])
    np.testing.assert_array_equal(some.contexts, np.asarray(matches.contexts)[[2, 4, 7]])
    assert some.wins.tolist() == [float(matches.wins[row]) for row in (2, 4, 7)]
    assert some.num_items == 6
    assert same(matches.take(range(matches.num_pairs)), matches)


@pytest.mark.slow  # loads whatever is registered
def test_a_file_holds_matches():
    table = pd.DataFrame({"winner": ["cat", "ant"], "loser": ["ant", "bee"], "judge": ["x", "y"]})
    matches = Matches.from_tables(ITEMS, table, contexts=["judge"])
    assert same(from_spec(json.loads(json.dumps(to_spec(matches))), "data"), matches)


def test_splits_follow_the_key(duels):
    matches = Matches.create(duels.items, duels.first, duels.second, duels.y, tie=0.5)
    one, again, other = (matches.split(jax.random.key(key), 0.7)[0] for key in (0, 0, 1))
    assert same(one, again) and not same(one, other)


def test_tables_keep_their_names_and_levels():
    table = pd.DataFrame(
        {"winner": ["cat", "ant", "bee"], "loser": ["ant", "cat", "cat"], "drawn": [0, 1, 0], "judge": ["x", "x", "y"]}
    )
    matches = Matches.from_tables(ITEMS, table, contexts=["judge"], tie="drawn")
    assert matches.item_names == ("ant", "bee", "cat")
    assert matches.feature_names == ("size", "color")
    assert matches.schema.to_json() == read_points(ITEMS[["size", "color"]])[1].to_json()
    assert matches.context_schema.levels == {"judge": ("x", "y")}
    np.testing.assert_array_equal(matches.items, [[1.0, 1.0], [2.0, 0.0], [30.0, 1.0]])
    np.testing.assert_array_equal(matches.pairs, [[0, 2], [1, 2]])
    counts = np.stack([matches.wins, matches.losses, matches.ties], axis=1)
    np.testing.assert_array_equal(counts, [[0, 1, 1], [1, 0, 0]])
    np.testing.assert_array_equal(matches.contexts, [[0.0], [1.0]])
    chosen = Matches.from_tables(ITEMS, table, features=["size"])
    assert chosen.feature_names == ("size",) and chosen.contexts is None
    part, _ = matches.split(jax.random.key(0), 0.5)
    assert part.item_names == matches.item_names and part.context_levels == matches.context_levels


def test_items_of_an_array_are_called_by_their_numbers(duels):
    table = pd.DataFrame({"winner": duels.first, "loser": duels.second})
    assert same(Matches.from_tables(duels.items, table), Matches.create(duels.items, duels.first, duels.second))


def test_what_was_clicked_beats_what_was_merely_viewed():
    rng = np.random.default_rng(2)
    views = pd.DataFrame(
        {
            "session": rng.integers(0, 8, 60),
            "ID": rng.integers(0, 6, 60),
            "clicked": rng.integers(0, 2, 60),
        }
    )
    views["device"] = views["session"] % 2 * 1.0
    items = rng.normal(size=(6, 2))
    matches = Matches.from_sessions(items, views, contexts=["device"])
    expected: Counter = Counter()
    for session, group in views.groupby("session"):
        clicked = set(group["ID"][group["clicked"] == 1])
        for winner in clicked:
            for loser in set(group["ID"]) - clicked:
                expected[winner, loser, session % 2 * 1.0] += 1
    found: Counter = Counter()
    for row, (low, high) in enumerate(matches.pairs.tolist()):
        context = float(matches.contexts[row, 0])
        found[low, high, context] += int(matches.wins[row])
        found[high, low, context] += int(matches.losses[row])
    assert +found == expected and expected
    assert matches.context_names == ("device",)
    shuffled = views.sample(frac=1, random_state=0)
    assert same(Matches.from_sessions(items, shuffled, contexts=["device"]), matches)


TABLE = pd.DataFrame({"winner": ["ant"], "loser": ["bee"]})
VIEWS = pd.DataFrame({"session": [1, 1, 2], "ID": [0, 1, 2], "clicked": [1, 0, 1], "device": [0.0, 1.0, 0.0]})
X = np.zeros((3, 2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Matches.create(X, [0, 1], [0, 2]), "`first` and `second` must be different items, got 1 matches"),
        (lambda: Matches.create(X, [0, 1], [1, 3]), "`second` must hold numbers from 0 to 2.*got 3 in row 1"),
        (lambda: Matches.create(X, [-1], [1]), "`first` must hold numbers from 0 to 2.*got -1 in row 0"),
        (lambda: Matches.create(X, [0.0], [1]), "`first` must hold numbers of rows.*float64"),
        (lambda: Matches.create(X, [], []), "`first` must hold numbers of rows.*shape \\(0,\\)"),
        (lambda: Matches.create(X, [0, 1], [1]), "`first` and `second` must have the same number of rows, got 2 and 1"),
        (lambda: Matches.create(X, [0, 1], [1, 2], [1]), "`first` and `y` must have the same number of rows"),
        (lambda: Matches.create(X, [0], [1], contexts=[[1.0], [2.0]]), "`first` and `contexts` must have the same"),
        (lambda: Matches.create(X, [0], [1], contexts=[[np.nan]]), "`contexts` must be finite"),
        (lambda: Matches.create([[np.inf]], [0], [0]), "`items` must be finite"),
        (lambda: Matches.create(X[:, 0], [0], [1]), "`items` must have shape \\(n, d\\)"),
        (lambda: Matches.create(X, [0], [1], [2]), "`y` must hold the labels 1 and 0, or 1 and -1, got the values"),
        (lambda: Matches.create(X, [0], [1], [np.nan]), "`y` must be finite"),
        (lambda: Matches.create(X, [0, 1, 2], [1, 2, 0], [1, 0, -1]), "`tie=0` beside -1 and 1"),
        (lambda: Matches.create(X, [0, 1], [1, 2], [1, 0.5]), "say what a tie is labeled with, such as `tie=0.5`"),
        (lambda: Matches.create(X, [0], [1], [1], tie=1), "`tie` must differ from 1"),
        (lambda: Matches.create(X, np.ma.masked_equal([0, 1], 1), [1, 2]), "`first` has 1 masked entries"),
        (lambda: Matches.create(X, [0, 1], [1, 2], np.ma.masked_equal([1, 0], 0)), "`y` has 1 masked entries"),
        (lambda: Matches.from_counts(X, [0], [1], [1.5], [0]), "`wins` must count matches, got 1.5 in row 0"),
        (lambda: Matches.from_counts(X, [0], [1], [1], [-1]), "`losses` must count matches, got -1 in row 0"),
        (lambda: Matches.from_counts(X, [0], [1], [0], [0]), "must count a match in each row, got none in row 0"),
        (lambda: Matches.from_tables(ITEMS, TABLE, winner="won"), "`matches` lacks the columns \\['won'\\]"),
        (
            lambda: Matches.from_tables(ITEMS, TABLE, contexts="loser"),
            "`contexts` must be a list of names.*, got str 'loser'",
        ),
        (lambda: Matches.from_tables(ITEMS, TABLE, contexts=["day"]), "`matches` lacks the columns \\['day'\\]"),
        (lambda: Matches.from_tables(ITEMS, TABLE, tie="loser"), "`matches` must hold 1 and 0 in column 'loser'"),
        (lambda: Matches.from_tables(ITEMS, [[0, 1]]), "`matches` must be a data frame, got list"),
        (lambda: Matches.from_tables(ITEMS[["ID"]], TABLE), "`items` must have columns that describe the items"),
        (
            lambda: Matches.from_tables(ITEMS, TABLE.replace("bee", "dog")),
            "names 1 items.*'loser'.*has not: \\['dog'\\]",
        ),
        (
            lambda: Matches.from_tables(ITEMS, TABLE.replace("bee", None)),
            "`matches` has missing values \\('loser': 1\\)",
        ),
        (
            lambda: Matches.from_tables(ITEMS.replace("bee", "ant"), TABLE),
            "`items` must name each item once.*\\['ant'\\]",
        ),
        (lambda: Matches.from_tables(X, TABLE, features=["size"]), "`features` names columns of a data frame"),
        (lambda: Matches.from_sessions(X, VIEWS[2:]), "`views` must have a session in which some items were clicked"),
        (lambda: Matches.from_sessions(X, VIEWS, contexts=["device"]), "one context, got another in column 'device'"),
        (lambda: Matches.from_sessions(X, VIEWS, clicked="ID"), "`views` must hold 1 and 0 in column 'ID'"),
        (lambda: Matches.create(X, [0], [1]).split(jax.random.key(0), 0.5), "must leave something in both parts of 1"),
        (lambda: Matches.create(X, [0], [1]).take([0, 0]), "`rows` must be different numbers from 0 to 0"),
        (lambda: Matches.create(X, [0], [1]).take([1]), "`rows` must be different numbers from 0 to 0"),
        (lambda: Matches.create(X, [0], [1]).take([True]), "`rows` must hold numbers of rows.*bool"),
        (
            lambda: Matches.create(X, [0, 1], [1, 2]).split(jax.random.key(0), 1.0),
            "`train_fraction` must leave something",
        ),
        (lambda: Matches.create(X, [0, 1], [1, 2]).split(jax.random.key(0), 0.5, by="x"), "`by` must be one of"),
        (
            lambda: Matches(*map(jnp.asarray, ([[0.0], [1.0]], [[1, 0]], [1.0], [0.0], [0.0]))),
            "`pairs` must hold two different numbers of the 2 items, the lower first",
        ),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_matches_of_many_items_print_in_one_line_and_names_are_left_out(caplog):
    number = np.arange(800)
    items = pd.DataFrame(
        {"ID": number, "name": [f"item {i}" for i in number], "kind": np.array(["a", "b"])[number % 2]}
    )
    table = pd.DataFrame({"winner": number[:-1], "loser": number[1:]})
    matches = Matches.from_tables(items, table)
    assert matches.feature_names == ("kind",)
    assert "['name'] of `items` have another level in each of 800 rows" in caplog.text
    assert repr(matches) == "Matches(800 items, 799 pairs, 799 matches, items=Schema(kind in {a, b}))"
    caplog.clear()
    named = Matches.from_tables(items, table, features=["name", "kind"])
    assert named.feature_names == ("name", "kind") and not caplog.text
    assert len(repr(named)) < 200
