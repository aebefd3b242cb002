"""Margins: functions whose sign is the side of a boundary on which a point lies.

The boundary of a classifier is the boundary of the region in which a class is predicted; the boundary of a regression
is a level set, or the boundary of the regions where the function is steep. Each is the zero set of a margin, a function
from points (n, d) to (n,) that is positive on one side, called inside, and zero or negative outside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from kpp.foundation.validation import as_points, is_concrete, positive, probability
from kpp.runtime.batching import call_in_chunks
from kpp.typing import AnyArray

_Function = Callable[[Any], Any]


def class_margin(function: _Function, index: int | str = 1) -> _Function:
    r"""Return the margin of one class against the rest.

    .. math:: m_k(x) = p_k(x) - \max_{j \neq k} p_j(x)

    With one output, the probability p of the second of two classes, it is p - 1/2 for class 1 and 1/2 - p for class 0.
    With labels (integers, booleans or strings) it is 1 if the label is `index`, otherwise -1.

    Args:
        function: From points (n, d) to the probabilities or scores of c classes, (n, c), to the probability of class 1,
            (n,) or (n, 1), or to labels, (n,). If it is written in JAX, the margin can be differentiated.
        index: k, the position of the class; with labels the label itself.

    Returns:
        The margin, from points (n, d) to (n,).

    References:
        Hill, Masoomi, Torop, Ghimire, Dy (2023), "Boundary-aware uncertainty for feature attribution explainers",
        appendix C.3.
    """
    # An array, so that compiled programs do not depend on the class.
    return ClassMargin(function, np.asarray(index) if isinstance(index, int) else index)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class ClassMargin:
    """What `class_margin` returns: a pytree, so that the classes of a network share compiled programs."""

    function: _Function
    index: Any

    def __call__(self, x: ArrayLike) -> Any:
        """Return the margin at points."""
        values = _as_array(self.function(x))
        if values.ndim == 1 and values.dtype.kind != "f":
            return _library(values).where(values == self.index, 1.0, -1.0)
        if values.ndim == 1 or values.shape[1] == 1:
            _check_index(self.index, 2)
            return (2 * self.index - 1) * (values.reshape(-1) - 0.5)  # class 1 is above one half, class 0 below
        _check_index(self.index, values.shape[1])
        others = _library(values).where(np.arange(values.shape[1]) == self.index, -np.inf, values)
        return values[:, self.index] - others.max(axis=1)


def level_margin(function: _Function, level: float, index: int = 0) -> _Function:
    r"""Return the margin of a level set, :math:`m(x) = f_i(x) - c`.

    For a classifier with a single output, the log-odds, the level is 0.

    Args:
        function: From points (n, d) to values (n,) or (n, outputs).
        level: c, in the unit of the values.
        index: i, the position of the output, if there are several.

    Returns:
        The margin, from points (n, d) to (n,).
    """

    def margin(x: ArrayLike) -> Any:
        return _output(_as_array(function(x)), index) - level

    return margin


def steep_margin(
    function: _Function, x: Float[AnyArray, "n d"], *, quantile: float = 0.9, step: float | None = None, index: int = 0
) -> _Function:
    r"""Return the margin of the regions where a function is steep.

    .. math:: m(x) = \|S \nabla f_i(x)\| - q,

    where S has the standard deviations of the features on its diagonal, so that units do not matter, and q is a
    quantile of the first term over the points `x`.

    Args:
        function: From points (n, d) to values (n,) or (n, outputs).
        x: The points that set the threshold and the scales, (n, d).
        quantile: The share of the points that are not steep, between 0 and 1.
        step: The half-width h of the central differences, in standard deviations, which take 2 d evaluations per point;
            None for the gradient by JAX, in which the function must be written. For a step function, such as a forest,
            it is the width over which steps are averaged.
        index: i, the position of the output, if there are several.

    Returns:
        The margin, from points (n, d) to (n,).

    Raises:
        ValueError: If `quantile` is not between 0 and 1, `step` is not positive or `x` is not a table of points.
    """
    probability(quantile, "quantile")
    if step is not None:
        positive(step, "step")
    points = np.asarray(as_points(x))
    scale = standard_deviations(points)
    norms = _norms_by_jax(function, scale, index) if step is None else _norms_by_steps(function, scale, index, step)
    return level_margin(norms, float(np.quantile(call_in_chunks(norms, points)[0], quantile)))


def standard_deviations(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " d"]:
    """Return the standard deviations of the columns, 1 for a constant one, (d,)."""
    deviations = x.std(axis=0)
    # The computed standard deviation of a constant column may be a rounding error.
    return np.where(deviations > 1e-12 * np.abs(x).max(axis=0), deviations, 1.0)


def _norms_by_jax(function: _Function, scale: np.ndarray, index: int) -> _Function:
    def value(point: Array) -> Any:
        return _output(_as_array(function(point[None])), index)[0]

    def norm(point: Array) -> Any:
        return jnp.linalg.norm(scale * jax.grad(value)(point))

    return jax.jit(lambda x: jax.vmap(norm)(jnp.asarray(x, jnp.result_type(float))))


def _norms_by_steps(function: _Function, scale: np.ndarray, index: int, step: float) -> _Function:
    def norms(x: ArrayLike) -> np.ndarray:
        x = np.asarray(x)
        shifts = step * np.diag(scale)
        shifted = np.concatenate([x[:, None] + shifts, x[:, None] - shifts], axis=1)
        values, _ = call_in_chunks(function, shifted.reshape(-1, x.shape[1]))
        upper, lower = np.split(np.asarray(_output(values, index)).reshape(len(x), -1), 2, axis=1)
        return np.linalg.norm((upper - lower) / (2.0 * step), axis=1)  # per standard deviation, the unit of the shifts

    return norms


def _as_array(values: AnyArray) -> Any:
    """Return predictions as an array of their own library, NumPy or JAX."""
    values = values if isinstance(values, jax.Array) else np.asarray(values)
    if values.ndim not in (1, 2):
        raise ValueError(
            f"`function` must return one prediction per point, shape (n,) or (n, outputs), got shape {values.shape}"
        )
    return values


def _library(values: AnyArray) -> Any:
    return jnp if isinstance(values, jax.Array) else np


def _output(values: AnyArray, index: int) -> Any:
    if values.ndim == 1:
        return values
    _check_index(index, values.shape[1])
    return values[:, index]


def _check_index(index: object, count: int) -> None:
    if is_concrete(index) and index not in range(count):
        raise ValueError(f"`index` must be one of the {count} outputs or classes, from 0 to {count - 1}, got {index}")
