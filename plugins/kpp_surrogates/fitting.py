"""Linear models of the predictions at perturbed rows, for blocks of points that fit into memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from tqdm import tqdm

from kpp.typing import AnyArray
from kpp_surrogates.inputs import Task, even_blocks
from kpp_surrogates.perturbation import Perturbations

__all__ = ["LinearModels", "fit_in_blocks"]

# Entries of the perturbed rows, or of their predictions, at once; and seconds after which a bar appears.
_MAX_ENTRIES, _PATIENCE = 2**22, 1.0

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
    entries = num_perturbations * max(task.x.shape[1], task.num_targets)
    size = even_blocks(len(task.x), _MAX_ENTRIES // entries)
    starts = range(0, len(task.x), size)
    parts = []
    for start in tqdm(starts, desc=label, unit="block", delay=_PATIENCE, disable=not progress):
        points = task.x[start : start + size]
        perturbations = sample(points, num_perturbations)
        targets = task.predict(perturbations.rows)
        models = fit(_fill(perturbations.features, size), _fill(targets, size))
        parts.append(jax.tree.map(np.asarray, models))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(task.x)], *parts)


def _fill(array: np.ndarray, size: int) -> np.ndarray:
    """Repeat the last point, so that all blocks have one shape and the regression compiles once."""
    missing: Any = [(0, size - len(array)), *[(0, 0)] * (array.ndim - 1)]
    return np.pad(array, missing, mode="edge")
