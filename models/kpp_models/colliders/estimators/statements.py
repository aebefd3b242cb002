r"""Reading the argument `collider`: independences of the target, as statements about columns of the features.

An independence :math:`Y \perp A \mid B` of a target and features says of the regression :math:`f(x) = E[Y \mid X = x]`
that :math:`E[f(X) \mid A, B] = E[Y \mid B]`. All estimators read `collider` here, and test on the data whether its
statements hold.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import Float

from kpp.causal import CausalDAG, ColliderPartition, Independence
from kpp.foundation.caution import KppWarning

if TYPE_CHECKING:
    from kpp.embeddings import MeanIndependenceTest

LEVEL = 0.01
MAX_TESTED_ROWS = 1000  # the time of a test grows with the cube of the rows


@dataclasses.dataclass(frozen=True)
class Statement:
    """An independence of the target in the user's names, of the columns A given the columns B, by position."""

    independence: Independence
    of: tuple[int, ...]
    given: tuple[int, ...]

    @property
    def condition(self) -> tuple[int, ...]:
        """The columns on which a regression is averaged, C = (A, B)."""
        return self.of + self.given

    def __str__(self) -> str:
        return str(self.independence)


def read_statements(
    collider: object, outcome: str | None, num_features: int, feature_names: Iterable[str] | None = None
) -> tuple[Statement, ...]:
    """Read `collider`, in any form that `ProjectedRegressor` takes, into statements about d columns.

    They are none without a collider, or if the outcome shares no child with another variable. Raises TypeError if
    `collider` has another form; ValueError if a name or position is not a column, a column is named twice, the target
    is among the columns, the statements are not about the same outcome, or `outcome` is missing;
    `kpp.causal.ColliderError` if the graph has no collider partition of the outcome.
    """
    independences = [statement for statement in _independences(collider, outcome) if statement.of]
    outcomes = {outcome} - {None} | {statement.outcome for statement in independences}
    if len(outcomes) > 1:
        raise ValueError(f"`collider` and `outcome` must be about one outcome, got {sorted(map(str, outcomes))}")
    names = None if feature_names is None else list(feature_names)
    for name in outcomes & set(names or ()):
        raise ValueError(f"`X` must not hold the outcome, got it as the column {name!r}")
    return tuple(_locate(statement, num_features, names) for statement in independences)


def check_statements(
    statements: Sequence[Statement],
    table: Float[np.ndarray, "n d"],
    targets: Float[np.ndarray, "n q"],
    random: np.random.RandomState,
) -> tuple[MeanIndependenceTest, ...]:
    """Test on labeled rows (n, d) what the statements say about functions of the target, (n, q), and return the tests.

    Statements that look false give a warning. A statement is rejected if its p-value is below 0.01. If there are more
    than 1000 rows, 1000 of them are drawn, because the time of a test grows with the cube of the number of rows.
    """
    from kpp.embeddings import mean_independence_test

    found: list[MeanIndependenceTest] = []
    for statement in statements:
        rng_key = jax.random.key(int(random.randint(2**31 - 1)))
        given = table[:, statement.given] if statement.given else None
        test = mean_independence_test(rng_key, targets, table[:, statement.of], given, max_rows=MAX_TESTED_ROWS)
        if test.p_value < LEVEL:
            warnings.warn(
                f"`collider` says {statement}, but the labeled rows speak against it (p = {test.p_value:.2g} of "
                "kpp.embeddings.mean_independence_test); if it is false, the projection takes away what is true",
                KppWarning,
                stacklevel=4,
            )
        found.append(test)
    return tuple(found)


def _independences(collider: object, outcome: str | None) -> list[Independence]:
    if collider is None:
        return []
    if isinstance(collider, CausalDAG):
        if outcome is None:
            raise ValueError("`outcome` must name the target's node of the graph in `collider`, got None")
        return [collider.collider_partition(outcome).independence]
    parts = [collider] if isinstance(collider, (Independence, ColliderPartition)) else collider
    if isinstance(parts, str) or not isinstance(parts, Sequence):
        raise TypeError(_wanted(collider))
    for part in parts:
        if not isinstance(part, (Independence, ColliderPartition)):
            raise TypeError(_wanted(part))
    return [part.independence if isinstance(part, ColliderPartition) else part for part in parts]


def _wanted(value: object) -> str:
    return (
        "`collider` must be None, a kpp.causal.CausalDAG, a ColliderPartition, an Independence or a sequence of these, "
        f"got {type(value).__name__} {value!r}"
    )


def _locate(statement: Independence, num_features: int, feature_names: list[str] | None) -> Statement:
    of = tuple(_position(name, statement, num_features, feature_names) for name in statement.of)
    given = tuple(_position(name, statement, num_features, feature_names) for name in statement.given)
    if len({*of, *given}) < len(of) + len(given):
        raise ValueError(f"`collider` must name each column once, got {statement} for the columns {of + given}")
    return Statement(statement, of, given)


def _position(name: object, statement: Independence, num_features: int, feature_names: list[str] | None) -> int:
    if isinstance(name, str):
        if feature_names is None:
            raise ValueError(
                f"`collider` names the column {name!r} ({statement}), but `X` is an array: give a data frame, or an "
                "Independence with positions"
            )
        if name not in feature_names:
            raise ValueError(f"`X` lacks the column {name!r} of {statement}; it has {feature_names}")
        return feature_names.index(name)
    position = name if isinstance(name, (int, np.integer)) and not isinstance(name, bool) else -1
    if not 0 <= position < num_features:
        raise ValueError(
            f"`collider` must hold names of columns or positions from 0 to {num_features - 1}, got {name!r} in "
            f"{statement}"
        )
    return int(position)
