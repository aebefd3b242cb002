"""The common steps of explainers by Shapley values: blocks of draws and points, solved one after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Array, Float, PyTree

from kpp.games import ShapleyEstimate
from kpp.runtime.batching import in_blocks

_LOGGER = logging.getLogger("kpp")

Solver = Callable[[Any, Float[Array, "b d"]], tuple[ShapleyEstimate, PyTree]]


def solve_in_blocks(
    solve: Solver,
    function: object,
    x: Float[Array, "p d"],
    *,
    instances_at_once: int,
    progress: bool,
    label: str = "explain",
    threads: int = 1,
    row_axis: int | None = None,
) -> tuple[ShapleyEstimate, PyTree]:
    """Estimate Shapley values in blocks of draws and points, with a progress bar.

    Blocks may be solved by different methods: a block with few players that are not null players is solved exactly,
    while another one is sampled. The result is exact if all blocks are, and an exact block has standard errors of 0.

    Args:
        solve: A function from an `RKHSFunction` or callable and a block of points (b, d) to an estimate and a pytree of
            further arrays, all of which lead with (*draws, b).
        function: The function; see `kpp.runtime.batching.in_blocks`.
        x: The points, (p, d).
        instances_at_once: The largest number of points in a block.
        progress: Whether to show the progress bar.
        label: The text in front of the progress bar.
        threads: As for `kpp.runtime.batching.map_blocks`.
        row_axis: As for `kpp.runtime.batching.in_blocks`.

    Returns:
        The estimate for all draws and points, and the further arrays.
    """
    estimates: list[ShapleyEstimate] = []

    def solve_block(part: object, rows: Float[Array, "b d"]) -> tuple[Any, Any, PyTree]:
        estimate, others = solve(part, rows)
        estimates.append(estimate)
        errors = np.zeros(estimate.values.shape) if estimate.standard_errors is None else estimate.standard_errors
        return estimate.values, errors, others

    values, errors, others = in_blocks(
        solve_block,
        function,
        x,
        instances_at_once=instances_at_once,
        label=label,
        progress=progress,
        threads=threads,
        row_axis=row_axis,
    )
    exact = all(estimate.exact for estimate in estimates)
    estimate = ShapleyEstimate(
        values,
        None if all(estimate.standard_errors is None for estimate in estimates) else errors,
        estimates[0].method,
        exact,
        _largest([estimate.num_coalitions for estimate in estimates]),
        _largest([estimate.num_nodes for estimate in estimates]),
        estimates[0].tolerance,
    )
    if estimate.tolerance_reached is False:
        _LOGGER.warning(
            "the largest standard error is %.3g after %d coalitions, more than the `tolerance` %.3g; allow for more by "
            "`num_coalitions`",
            np.max(errors),
            estimate.num_coalitions,
            estimate.tolerance,
        )
    return estimate, others


def _largest(numbers: list[int | None]) -> int | None:
    return max((number for number in numbers if number is not None), default=None)
