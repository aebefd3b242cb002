"""Linear models of the predictions at perturbed rows, for blocks of points that fit into memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from kpp.batching import even_size, map_blocks, progress_bar
from kpp.typing import AnyArray
from kpp_surrogates.inputs import Task
from kpp_surrogates.perturbation import Perturbations

__all__ = ["LinearModels", "fit_in_blocks"]

# The most entries of the perturbed rows, or of their predictions, in one block.
_MAX_ENTRIES = 2**22

Fit = Callable[[Float[np.ndarray, "b n g"], Float[np.ndarray, "b n r"]], "LinearModels"]


class LinearModels(NamedTuple):
    """One linear model of each target around each point.

    Attributes:
        intercepts: (p, r).
        coefficients: (p, g, r).
        variance: The variances of the coefficients, (p, g, r), if they have a law.
    """

    intercepts: Float[AnyArray, "p r"]
    coefficients: Float[AnyArray, "p g r"]
    variance: Float[AnyArray, "p g r"] | None

    def as_arrays(self, task: Task) -> dict[str, Any]:
        """Return what an explanation of the task takes; the intercepts are its base values."""
        named = {"base_values": self.intercepts, "values": self.coefficients, "variance": self.variance}
        return {name: None if value is None else task.unfold(np.asarray(value)) for name, value in named.items()}


def fit_in_blocks(
    task: Task,
    sample: Callable[[Float[np.ndarray, "b d"], int], Perturbations],
    fit: Fit,
    num_perturbations: int,
    *,
    label: str,
    progress: bool,
) -> LinearModels:
    """Fit the linear models of a task, some points at a time.

    Args:
        task: The task.
        sample: From points (b, d) and n to their n perturbations.
        fit: From features (b, n, g) and predictions (b, n, r) to linear models.
        num_perturbations: n.
        label: What the progress bar says.
        progress: Whether to show one, after a second.

    Returns:
        The models of all points, as NumPy arrays.
    """

    def fit_block(points: Float[np.ndarray, "b d"]) -> LinearModels:
        perturbations = sample(points, num_perturbations)
        return fit(perturbations.features, task.predict(perturbations.rows))

    entries = num_perturbations * max(task.x.shape[1], task.num_targets)
    size = even_size(len(task.x), _MAX_ENTRIES // entries)
    with progress_bar(math.ceil(len(task.x) / size), label, show=progress) as bar:
        return map_blocks(fit_block, task.x, size, bar=bar)
