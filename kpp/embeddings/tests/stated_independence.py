"""Tests of statements of independence, such as those that a causal graph implies, on the columns of a data frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

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
    if tested == "distribution":
        if regularization is not None:
            raise ValueError("`regularization` goes with `tested='mean'`; the test of the distribution chooses its own")
        x, y, given = (_table(frame, names) for names in (independence.of, (independence.outcome,), independence.given))
        return conditional_independence_test(
            rng_key,
            x,
            y,
            given,
            x_kernel=kernel,
            given_kernel=given_kernel,
            num_permutations=num_permutations,
            max_rows=max_rows,
        )
    y, x = _columns(frame, (independence.outcome,)), _columns(frame, independence.of)
    given = _columns(frame, independence.given) if independence.given else None
    return mean_independence_test(
        rng_key,
        y,
        x,
        given,
        kernel=kernel,
        given_kernel=given_kernel,
        regularization=regularization,
        num_permutations=num_permutations,
        max_rows=max_rows,
    )


def _table(frame: pd.DataFrame, names: tuple[str | int, ...]) -> pd.DataFrame | None:
    """Return some columns of a data frame, or None if there are none."""
    check_columns(frame.columns, names, "frame")
    return frame[list(names)] if names else None


def _columns(frame: pd.DataFrame, names: tuple[str | int, ...]) -> Float[np.ndarray, "n d"]:
    return Schema(tuple(map(str, names))).read(frame, "frame")
