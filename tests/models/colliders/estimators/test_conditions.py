"""What `collider=` may be, what it means for columns, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from kpp.causal import CausalDAG, CausalError, ColliderError, ColliderPartition, Independence
from kpp_models.colliders.estimators.statements import check_statements, read_statements

GRAPH = CausalDAG([("p", "y"), ("y", "c"), ("s", "c"), ("y", "d")])
NAMES = ["c", "s", "p", "other"]
READ = {
    "none": (None, None, None, []),
    "graph": (GRAPH, "y", NAMES, [((1,), (2,))]),
    "graph without spouses": (CausalDAG([("p", "y"), ("y", "c")]), "y", NAMES, []),
    "partition": (ColliderPartition("y", ("c",), ("s",), ("p",)), None, NAMES, [((1,), (2,))]),
    "partition of positions": (ColliderPartition("y", (0,), (3, 1)), None, None, [((3, 1), ())]),
    "independence": (Independence("y", ("s", "other")), "y", NAMES, [((1, 3), ())]),
    "positions in a data frame": (Independence("y", (1,), (2,)), None, NAMES, [((1,), (2,))]),
    "several": (
        [Independence("y", ("s",)), Independence("y", ("other",), ("p",))],
        None,
        NAMES,
        [((1,), ()), ((3,), (2,))],
    ),
    "names of columns in an array of NumPy": (Independence("y", ("s",)), None, np.array(NAMES, object), [((1,), ())]),
}
REFUSED = {
    "graph without outcome": (GRAPH, None, NAMES, ValueError, "`outcome` must name the target's node"),
    "no collider": (3.5, None, NAMES, TypeError, "`collider` must be None, a kpp.causal.CausalDAG"),
    "a string": ("y _||_ s", None, NAMES, TypeError, "`collider` must be None"),
    "a set": ({Independence("y", ("s",))}, None, NAMES, TypeError, "`collider` must be None"),
    "strings": (["s"], None, NAMES, TypeError, "got str 's'"),
    "unknown column": (Independence("y", ("t",)), None, NAMES, ValueError, "`X` lacks the column 't' of y _||_ t"),
    "names for an array": (Independence("y", ("s",)), None, None, ValueError, "but `X` is an array"),
    "position": (Independence("y", (4,)), None, NAMES, ValueError, "positions from 0 to 3, got 4 in y _||_ 4"),
    "negative position": (Independence("y", (-1,)), None, None, ValueError, "positions from 0 to 3, got -1"),
    "boolean": (Independence("y", (True,)), None, None, ValueError, "got True"),
    "column twice": (Independence("y", ("s",), (1,)), None, NAMES, ValueError, "each column once"),
    "two outcomes": (
        [Independence("y", ("s",)), Independence("z", ("p",))],
        None,
        NAMES,
        ValueError,
        r"one outcome, got \['y', 'z'\]",
    ),
    "another outcome": (Independence("y", ("s",)), "z", NAMES, ValueError, "one outcome"),
    "outcome among the columns": (
        Independence("other", ("s",)),
        None,
        NAMES,
        ValueError,
        "`X` must not hold the outcome, got it as the column 'other'",
    ),
    "no partition": (
        CausalDAG([("y", "c"), ("c", "s"), ("y", "d"), ("s", "d")]),
        "y",
        NAMES,
        ColliderError,
        "y -> c -> s",
    ),
    "unknown node": (GRAPH, "z", NAMES, CausalError, "'z'"),
}


@pytest.mark.parametrize("name", READ)
def test_colliders_become_statements_over_columns(name):
    collider, outcome, names, expected = READ[name]
    found = read_statements(collider, outcome, 4, names)
    assert [(statement.of, statement.given) for statement in found] == expected
    assert all(statement.condition == statement.of + statement.given for statement in found)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_collider_is_refused(name):
    collider, outcome, names, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        read_statements(collider, outcome, 4, names)


def test_a_statement_that_looks_false_gives_a_warning():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(60, 2))
    statements = read_statements([Independence("y", (0,)), Independence("y", (1,))], None, 2)
    targets = (table[:, 0] + 0.5 * rng.normal(size=60))[:, None]
    with pytest.warns(UserWarning, match=r"`collider` says y _\|\|_ 0, but .* \(p = 0.001") as found:
        tests = check_statements(statements, table, targets, np.random.RandomState(0))
    assert len(found) == 1
    assert tests[0].p_value == 0.001 < 0.01 < tests[1].p_value


def test_a_statement_that_holds_gives_none():
    rng = np.random.default_rng(1)
    table, targets = rng.normal(size=(60, 2)), rng.normal(size=(60, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (test,) = check_statements(
            read_statements(Independence("y", (0,)), None, 2), table, targets, np.random.RandomState(0)
        )
    assert test.num_rows == 60
