"""Rankings: constructors, their errors, and splits."""

import jax
import numpy as np
import pandas as pd
import pytest

from kpp.preferences import Matches, Rankings

ITEMS = np.arange(8.0).reshape(4, 2)


def described(rankings):
    """The ranked items and all items of each ranking."""
    found = []
    for candidates, order in zip(np.asarray(rankings.candidates), np.asarray(rankings.order), strict=True):
        found.append((candidates[order[order >= 0]].tolist(), sorted(candidates[candidates >= 0].tolist())))
    return found


def test_a_complete_ranking_leaves_the_last_item_out():
    assert described(Rankings.create(ITEMS, [[2, 0, 3], [1, 3]])) == [([2, 0], [0, 2, 3]), ([1], [1, 3])]


def test_a_partial_ranking_keeps_all_ranked_items():
    assert described(Rankings.create(ITEMS, [[2, 0], [1]], [[1, 3], [0]])) == [([2, 0], [0, 1, 2, 3]), ([1], [0, 1])]


def test_choices_are_rankings_of_one_item():
    assert described(Rankings.from_choices(ITEMS, [[0, 3, 1], [2, 1]], [3, 2])) == [([3], [0, 1, 3]), ([2], [1, 2])]


def test_tables_name_items_and_leave_ranks_open():
    items = pd.DataFrame({"ID": ["a", "b", "c"], "price": [1.0, 2.0, 3.0], "kind": ["x", "y", "x"]})
    rows = pd.DataFrame(
        {"ranking": ["r2", "r2", "r2", "r1", "r1"], "ID": ["c", "a", "b", "b", "a"], "rank": [2, np.nan, 1, 1, np.nan]}
    )
    found = Rankings.from_tables(items, rows)
    assert found.item_names == ("a", "b", "c") and found.feature_names == ("price", "kind")
    assert found.levels == (("kind", ("x", "y")),)
    assert described(found) == [([1, 2], [0, 1, 2]), ([1], [0, 1])]


def test_matches_are_rankings_of_two():
    matches = Matches.create(ITEMS, [0, 2, 0], [1, 1, 1], [0, 1, 1])
    assert described(Rankings.from_matches(matches)) == [([0], [0, 1]), ([1], [0, 1]), ([2], [1, 2])]


def test_rankings_have_contexts_of_numbers_and_of_text():
    contexts = pd.DataFrame({"judge": ["a", "b"], "hour": [9.0, -0.0]})
    for found in (
        Rankings.create(ITEMS, [[2, 0], [1, 3]], [[], [0]], contexts),
        Rankings.from_choices(ITEMS, [[0, 2], [0, 1, 3]], [2, 1], contexts),
    ):
        assert found.context_names == ("judge", "hour") and found.context_levels == (("judge", ("a", "b")),)
        np.testing.assert_array_equal(found.contexts, [[0.0, 9.0], [1.0, 0.0]])
        np.testing.assert_array_equal(found.take([1]).contexts, [[1.0, 0.0]])


def test_tables_name_the_context_of_a_ranking():
    rows = pd.DataFrame({"ranking": ["r2", "r2", "r1", "r1"], "ID": [3, 1, 0, 1], "rank": [1, 2, 2, 1]})
    rows["judge"] = ["b", "b", "a", "a"]
    found = Rankings.from_tables(ITEMS, rows, contexts=["judge"])
    assert found.context_levels == (("judge", ("a", "b")),)
    np.testing.assert_array_equal(found.contexts, [[1.0], [0.0]])
    with pytest.raises(ValueError, match="each ranking by one context, got another in column 'judge' of ranking 'r1'"):
        Rankings.from_tables(ITEMS, rows.assign(judge=["b", "b", "a", "c"]), contexts=["judge"])


def test_matches_keep_their_contexts():
    contexts = pd.DataFrame({"judge": ["a", "b", "b"]})
    matches = Matches.create(ITEMS, [0, 2, 0], [1, 1, 1], [0, 1, 1], contexts)
    found = Rankings.from_matches(matches)
    assert described(found) == [([1], [0, 1]), ([0], [0, 1]), ([2], [1, 2])]
    np.testing.assert_array_equal(found.contexts, [[0.0], [1.0], [1.0]])
    assert found.context_schema == matches.context_schema


def test_options_are_the_different_items_in_their_contexts():
    contexts = [[5.0], [4.0], [5.0]]
    (items, found), numbers = Rankings.create(ITEMS, [[2, 0], [0, 1, 2], [0, 3]], contexts=contexts).options()
    np.testing.assert_array_equal(items, ITEMS[[0, 0, 1, 2, 2, 3]])
    np.testing.assert_array_equal(found.ravel(), [4, 5, 4, 4, 5, 5])
    np.testing.assert_array_equal(numbers, [[1, 4, -1], [0, 2, 3], [1, 5, -1]])


def test_a_split_has_every_ranking_once():
    rankings = Rankings.create(ITEMS, [[0, 1], [1, 2], [2, 3], [3, 0], [1, 0]])
    first, second = rankings.split(jax.random.key(0), 0.6)
    assert (first.num_rankings, second.num_rankings) == (3, 2)
    assert sorted(described(first) + described(second)) == sorted(described(rankings))
    assert "5 rankings of 2 to 2 items" in repr(rankings)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Rankings.create(ITEMS, []), "at least one ranking"),
        (lambda: Rankings.create(ITEMS, [[1]]), "two items or more"),
        (lambda: Rankings.create(ITEMS, [[]], [[1, 2]]), "rank one"),
        (lambda: Rankings.create(ITEMS, [[1, 4]]), "numbers from 0 to 3"),
        (lambda: Rankings.create(ITEMS, [[1, 2, 1]]), "each item once"),
        (lambda: Rankings.create(ITEMS, [[1.5, 2.0]]), "lists of item numbers"),
        (lambda: Rankings.create(ITEMS, [[1, 2]], [[0], [3]]), "same number of rows"),
        (lambda: Rankings.create(ITEMS, [[1, 2]], contexts=[[0.0], [1.0]]), "same number of rows"),
        (lambda: Rankings.from_choices(ITEMS, [[1, 2]], [0]), "items of their `sets`"),
        (
            lambda: Rankings.from_tables(ITEMS, pd.DataFrame({"ranking": [0, 0], "ID": [0, 1], "rank": [1, 3]})),
            "ranks 1, 2, ...",
        ),
        (
            lambda: Rankings.from_matches(Matches.create(ITEMS, [0, 1], [1, 2], [0.5, 1], tie=0.5)),
            "no ties",
        ),
        (lambda: Rankings.create(ITEMS, [[0, 1, 2]]).with_order([[0, 0]]), "different positions"),
        (lambda: Rankings.create(ITEMS, [[0, 1, 2]]).with_order([[0, 3]]), "different positions"),
        (lambda: Rankings.create(ITEMS, [[0, 1, 2]]).with_order([[0]]), r"whole numbers \(1, 2\)"),
        (lambda: Rankings.create(ITEMS, [[0, 1]]).take([1]), "numbers from 0 to 0"),
        (lambda: Rankings.create(ITEMS, [[0, 1]]).split(jax.random.key(0), 0.5), "both parts"),
    ],
)
def test_mistakes_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()
