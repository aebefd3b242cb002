"""The check of a causal graph on a table: a test of each independence that the graph implies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Float

from kpp.causal import Independence, implied_independences
from kpp.embeddings.tests.stated_independence import independence_test
from kpp.foundation.validation import one_of
from kpp.typing import RngKey

if TYPE_CHECKING:
    import pandas as pd

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
