"""The boundary sampler for differentiable models, by steps along the gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kpp.foundation.validation import count, positive
from kpp.runtime.memory import check_count
from kpp.storage.serialization import data_class
from kpp_gpec.boundary.brackets import Brackets, CountedMargin, halve, nearest
from kpp_gpec.boundary.sampler import AbstractBoundarySampler

# A crossing is searched at half the final width from the last point and at multiples of it, up to a length in standard
# units.
_GROWTH, _REACH = 4.0 ** np.arange(40), 0.1


@data_class
class GradientSampler(AbstractBoundarySampler):
    r"""Samples the boundary of a model written in JAX by Newton's steps towards it.

    .. math:: z \leftarrow z - m(z)\, \frac{\nabla m(z)}{\|\nabla m(z)\|^2}

    A step goes to the zero of the linearized margin, but its length is at most `step`, which is halved each time that
    the margin changes its sign, so that the steps also converge if the margin is far from linear. The starts are rows,
    and points between two rows if there are too few rows, so that the sample lies near the data; points outside the
    range of the rows are discarded. Then the last point is bracketed along the gradient: the shortest segment with ends
    on opposite sides is chosen, and halved if it is longer than `width`. A start whose steps do not lead to a crossing,
    for example because the gradient is zero, is paired with the nearest start on the other side, and bisected. So a
    point is returned only if the margin changes its sign there.

    Args:
        max_points, width, tolerance: As for `AbstractBoundarySampler`.
        num_starts: The number of starts; twice `max_points` by default.
        num_steps: The number of steps from each start.
        step: The largest step, in standard deviations.
    """

    max_points: int = eqx.field(static=True, default=1000)
    width: float = eqx.field(static=True, default=1e-6)
    num_starts: int | None = eqx.field(static=True, default=None)
    num_steps: int = eqx.field(static=True, default=30)
    step: float = eqx.field(static=True, default=1.0)
    tolerance: float = eqx.field(static=True, default=1e-4)

    def __check_init__(self) -> None:
        if self.num_starts is not None:
            count(self.num_starts, "num_starts")
        count(self.num_steps, "num_steps")
        positive(self.step, "step")

    def search(self, rng: np.random.Generator, margin: CountedMargin, z: Float[np.ndarray, "n d"]) -> Brackets:
        check_count(self.num_starts or 2 * self.max_points, "num_starts", 2 * z.shape[1])
        starts = _starts(rng, z, self.num_starts or 2 * self.max_points)
        ends, normals = self._descend(margin, starts, z.max(axis=0) > z.min(axis=0))
        within = np.flatnonzero(((ends >= z.min(axis=0)) & (ends <= z.max(axis=0))).all(axis=1))
        brackets, crossed = _bracket(margin, ends[within], normals[within], self.width)
        lost = np.delete(starts, within[crossed], axis=0)
        return halve(margin, Brackets.joined(brackets, _pair_lost(margin, lost, starts)), self.width)

    def _descend(
        self, margin: CountedMargin, starts: Float[np.ndarray, "k d"], is_free: Bool[np.ndarray, " d"]
    ) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, "k d"]]:
        """Return the last point from each start, and the unit vector along the gradient there."""

        @jax.jit
        def descend(z: Float[Array, "k d"]) -> Float[Array, "k e"]:
            return jax.vmap(lambda start: _newton(margin.function, start, is_free, self.num_steps, self.step))(z)

        found = margin.through_jax(descend, starts)
        margin.count(len(starts), self.num_steps + 1)
        ends, normals = np.split(found.astype(float), 2, axis=1)
        return ends, normals


def _newton(
    function: Callable[[Any], Any],
    start: Float[Array, " d"],
    is_free: Bool[np.ndarray, " d"],
    num_steps: int,
    step: float,
) -> Float[Array, " e"]:
    """Return the last point from a start, followed by the unit vector along the gradient there."""

    def move(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        point, limit, last = state
        value, direction, slope = _tangent(function, point, is_free)
        limit = jnp.where(value * last < 0.0, 0.5 * limit, limit)  # it stepped over the boundary
        length = jnp.where(slope > 0.0, value / jnp.where(slope > 0.0, slope, 1.0), 0.0)
        return point - jnp.clip(length, -limit, limit) * direction, limit, value

    begin = (start, jnp.asarray(step, start.dtype), jnp.zeros((), start.dtype))
    end = jax.lax.fori_loop(0, num_steps, move, begin)[0]
    return jnp.concatenate([end, _tangent(function, end, is_free)[1]])


def _tangent(
    function: Callable[[Any], Any], point: Float[Array, " d"], is_free: Bool[np.ndarray, " d"]
) -> tuple[Float[Array, ""], Float[Array, " d"], Float[Array, ""]]:
    """Return the margin at a point, the unit vector along its gradient, and the gradient's length."""
    value, gradient = jax.value_and_grad(lambda p: jnp.asarray(function(p[None])).reshape(()))(point)
    gradient = jnp.where(is_free, gradient, 0.0)
    largest = jnp.max(jnp.abs(gradient))
    # If a probability is very close to 0 or 1, the squares of its derivatives underflow.
    relative = gradient / jnp.where(largest > 0.0, largest, 1.0)
    length = jnp.sqrt(jnp.where(largest > 0.0, jnp.sum(relative**2), 1.0))
    return value, relative / length, length * largest


def _starts(rng: np.random.Generator, z: Float[np.ndarray, "n d"], num_starts: int) -> Float[np.ndarray, "k d"]:
    """Draw rows, and if there are too few, add points between two of them."""
    if len(z) >= num_starts:
        return z[rng.choice(len(z), num_starts, replace=False)]
    first, second = (z[rng.integers(len(z), size=num_starts - len(z))] for _ in range(2))
    return np.concatenate([z, first + rng.uniform(size=(len(first), 1)) * (second - first)])


def _bracket(
    margin: CountedMargin, points: Float[np.ndarray, "k d"], normals: Float[np.ndarray, "k d"], width: float
) -> tuple[Brackets, Int[np.ndarray, " b"]]:
    """Return the shortest crossed segments along the normals, and the positions of the points that have one."""
    radii = 0.5 * width * _GROWTH[: 1 + int((0.5 * width * _GROWTH < _REACH).sum())]
    shifts = radii[:, None, None] * normals
    ends = np.stack([points + shifts, points - shifts])
    is_inside = margin.is_inside(ends.reshape(-1, points.shape[1])).reshape(ends.shape[:-1])
    opposite = is_inside[0] != is_inside[1]
    crossed = np.flatnonzero(opposite.any(axis=0))
    shortest = opposite.argmax(axis=0)[crossed]
    first, second = ends[:, shortest, crossed]
    in_first = is_inside[0, shortest, crossed][:, None]
    brackets = Brackets(np.where(in_first, first, second), np.where(in_first, second, first), len(crossed))
    return brackets, crossed


def _pair_lost(margin: CountedMargin, lost: Float[np.ndarray, "k d"], starts: Float[np.ndarray, "m d"]) -> Brackets:
    """Pair the starts without a crossing with the nearest start on the other side, if there is one."""
    if not len(lost):
        return Brackets(lost, lost, 0)
    is_inside = margin.is_inside(starts)
    inside, outside = starts[is_inside], starts[~is_inside]
    if not (len(inside) and len(outside)):
        return Brackets(lost[:0], lost[:0], len(lost))
    in_lost = margin.is_inside(lost)
    first = np.concatenate([lost[in_lost], inside[nearest(lost[~in_lost], inside)]])
    second = np.concatenate([outside[nearest(lost[in_lost], outside)], lost[~in_lost]])
    return Brackets(first, second, len(lost))
