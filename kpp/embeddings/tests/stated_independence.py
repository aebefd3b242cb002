"""Tests of statements of independence, such as those that a causal graph implies, on the columns of a data frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Float

from kpp.causal import Independence, implied_independences
from kpp.data.tables import Schema, as_frame, check_columns
from kpp.embeddings.tests.conditional_independence import conditional_independence_test
from kpp.embeddings.tests.mean_independence import MeanIndependenceTest, mean_independence_test
from kpp.embeddings.tests.residuals import IndependenceTest
from kpp.foundation.validation import one_of
from kpp.kernels import AbstractKernel
from kpp.typing import AnyArray, RngKey

if TYPE_CHECKING:
    import pandas as pd

    from kpp.causal import Independence


def independence_test(
    rng_key: RngKey,
    frame: pd.DataFrame,
    independence: Independence,
    *,
    tested: str = "mean",
    kernel: AbstractKernel | None = None,
    given_kernel: AbstractKernel | None = None,
    regularization: float | AnyArray | None = None,
    num_permutations: int = 999,
    max_rows: int = 1000,
) -> MeanIndependenceTest | IndependenceTest:
    """Test a statement of independence, or the mean independence that it implies, on the columns of a data frame.

    Args:
        rng_key: A JAX random key.
        frame: A data frame, whose columns have the names of the variables of the statement.
        independence: The statement: `ColliderPartition.independence`, or one of `kpp.causal.collider_independences` or
            `kpp.causal.implied_independences`.
        tested: "mean" for `mean_independence_test` of columns of numbers, or "distribution" for
            `conditional_independence_test`, where columns of text, categories and booleans are categories.
        kernel: The kernel of X, the variables that the outcome is independent of.
        given_kernel: The kernel of Z, the variables that are given.
        regularization: As for `mean_independence_test`; None if the distribution is tested.
        num_permutations: As for `mean_independence_test`.
        max_rows: As for `mean_independence_test`.

    Raises:
        ValueError: If `frame` is not a data frame, columns are missing or cannot be read, or as for
            `mean_independence_test` and `conditional_independence_test`.
    """
    one_of(tested, "tested", ("mean", "distribution"))
    frame = as_frame(frame, "frame")
    if not independence.of:
        raise ValueError(f"`independence` must say what the outcome is independent of, got {independence}")
    options: Any = {"given_kernel": given_kernel, "num_permutations": num_permutations, "max_rows": max_rows}
    if tested == "distribution":
        if regularization is not None:
            raise ValueError("`regularization` goes with `tested='mean'`; the test of the distribution chooses its own")
        x, y, given = (_table(frame, names) for names in (independence.of, (independence.outcome,), independence.given))
        return conditional_independence_test(rng_key, x, y, given, x_kernel=kernel, **options)
    y, x = _columns(frame, (independence.outcome,)), _columns(frame, independence.of)
    given = _columns(frame, independence.given) if independence.given else None
    return mean_independence_test(rng_key, y, x, given, kernel=kernel, regularization=regularization, **options)


def _table(frame: pd.DataFrame, names: tuple[str | int, ...]) -> pd.DataFrame | None:
    """Return some columns of a data frame, or None if there are none."""
    check_columns(frame.columns, names, "frame")
    return frame[list(names)] if names else None


def _columns(frame: pd.DataFrame, names: tuple[str | int, ...]) -> Float[np.ndarray, "n d"]:
    return Schema(tuple(map(str, names))).read(frame, "frame")


_CORRECTIONS = ("holm", "bh", "by")


def check_graph(
    rng_key: RngKey,
    graph: Any,
    frame: pd.DataFrame,
    *,
    independences: Sequence[Independence] | None = None,
    correction: str = "holm",
    num_permutations: int = 999,
    max_rows: int = 1000,
) -> pd.DataFrame:
    """Test on a table every independence that a causal graph implies.

    A small adjusted p-value says that the table contradicts the graph: an edge is missing, an edge has the wrong
    direction, or a hidden common cause is not in the graph. A large one does not say that the graph is right: many
    graphs imply the same independences, and a table with few rows contradicts few graphs.

    Args:
        rng_key: A JAX random key.
        graph: The graph, whose observed nodes are columns of the table; see `kpp.causal.as_graph`.
        frame: The table, one column for each variable; columns of text, categories and booleans are categories.
        independences: The statements to test; by default `kpp.causal.implied_independences`.
        correction: The adjustment of the p-values for their number: "holm" bounds the probability of any false
            rejection, "bh" (Benjamini and Hochberg) and "by" (Benjamini and Yekutieli, for any dependence of the
            tests) bound the expected share of false ones among the rejections.
        num_permutations: As for `conditional_independence_test`. The smallest possible adjusted p-value by "holm" is
            the number of tests over this number plus 1.
        max_rows: As for `conditional_independence_test`.

    Returns:
        A data frame with one row for each statement, in their order, and the columns "independence" (text),
        "statistic", "p_value", "adjusted_p_value" and "num_rows".

    Raises:
        CausalError: If `graph` is not a causal graph.
        ValueError: If columns are missing or cannot be read, or as for `conditional_independence_test`.

    References:
        Holm, A simple sequentially rejective multiple test procedure, 1979.
    """
    import pandas as pd

    one_of(correction, "correction", _CORRECTIONS)
    statements = tuple(implied_independences(graph) if independences is None else independences)
    keys = jax.random.split(rng_key, max(len(statements), 1))
    found = [
        independence_test(
            key, frame, statement, tested="distribution", num_permutations=num_permutations, max_rows=max_rows
        )
        for key, statement in zip(keys, statements, strict=False)
    ]
    p_values = np.array([each.p_value for each in found])
    return pd.DataFrame(
        {
            "independence": [str(statement) for statement in statements],
            "statistic": np.array([each.statistic for each in found]),
            "p_value": p_values,
            "adjusted_p_value": _adjusted(p_values, correction),
            "num_rows": np.array([each.num_rows for each in found], dtype=int),
        }
    )


def _adjusted(p_values: Float[np.ndarray, " m"], correction: str) -> Float[np.ndarray, " m"]:
    """Return adjusted p-values, in the order of the p-values."""
    if not len(p_values):
        return p_values
    if correction != "holm":
        from scipy.stats import false_discovery_control

        return np.asarray(false_discovery_control(p_values, method=correction))
    order = np.argsort(p_values)
    scaled = np.minimum(np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1)), 1.0)
    return scaled[np.argsort(order)]
