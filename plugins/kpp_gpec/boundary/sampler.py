"""Samples of a decision boundary, and the base class of samplers.

A sampler searches for pairs of close points on opposite sides of a boundary; the boundary crosses the segment between
them. It works in standard units, in which each feature of the given points has mean 0 and standard deviation 1; its
results are in the features' own units.
"""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.foundation.modules import AbstractModule
from kpp.foundation.validation import as_points, at_least, check_rng_key, count, positive
from kpp.runtime.random import numpy_generator
from kpp.typing import AnyArray, RngKey
from kpp_gpec.boundary.brackets import Brackets, CountedMargin, spread
from kpp_gpec.boundary.margins import standard_deviations


class BoundarySample(eqx.Module):
    """Points on a boundary.

    Args:
        points: The points, (J, d), in the features' own units. J is 0 if no boundary was found.
        widths: The length of the segment around each point that the boundary crosses, (J,), in standard units; the
            point is its middle.
        num_pairs: The number of segments or starts that were tried.
        num_converged: The number of them that reached the requested width.
        num_calls: How often the margin was called, each time with all points at hand.
        num_evaluations: The total number of points at which it was evaluated.
        status: A sentence that summarizes the result.
    """

    points: Float[Array, "J d"]
    widths: Float[Array, " J"]
    num_pairs: int = eqx.field(static=True)
    num_converged: int = eqx.field(static=True)
    num_calls: int = eqx.field(static=True)
    num_evaluations: int = eqx.field(static=True)
    status: str = eqx.field(static=True)

    @classmethod
    def from_points(cls, points: Float[AnyArray, "J d"]) -> "BoundarySample":
        """Return a sample that consists of points which are known to lie on the boundary, for example from a formula.

        Args:
            points: The points, (J, d), in the features' own units.

        Returns:
            The sample, with widths 0.

        Raises:
            ValueError: If `points` is not a table of finite numbers with at least one row.
        """
        given = as_points(points, "points").astype(jnp.result_type(float))
        num = given.shape[0]
        return cls(given, jnp.zeros(num, given.dtype), num, num, 0, 0, f"{num} given points")

    @property
    def num_points(self) -> int:
        """J, the number of points."""
        return self.points.shape[0]

    @property
    def found(self) -> bool:
        """Whether there is any point."""
        return self.num_points > 0


class _Fields:
    """The fields of every final class, in a plain class for the sake of type checkers; see `kpp.foundation.modules`."""

    max_points: eqx.AbstractVar[int]
    width: eqx.AbstractVar[float]
    tolerance: eqx.AbstractVar[float]


class AbstractBoundarySampler(_Fields, AbstractModule):
    """A sampler of points on a boundary.

    A final class has the fields below, and a method `search` that finds brackets in standard units. Points within
    `tolerance` of each other are merged, and if there are more than `max_points`, a subset is kept that covers the
    boundary evenly (see `kpp_gpec.boundary.brackets.spread`).

    Args:
        max_points: The largest number of points to return.
        width: The length of the final segments, in standard units. It is the accuracy of the points for any model; a
            tolerance on the model's output could never be reached if the output is a step function.
        tolerance: The distance in standard units up to which two points count as one.
    """

    def __check_init__(self) -> None:
        count(self.max_points, "max_points")
        positive(self.width, "width")
        at_least(self.tolerance, "tolerance", 0.0, infinity_allowed=False)

    @abc.abstractmethod
    def search(self, rng: np.random.Generator, margin: CountedMargin, z: Float[np.ndarray, "n d"]) -> Brackets:
        """Find segments that the boundary crosses.

        Law: the margin is positive at every `inside` and at no `outside`, and all randomness comes from `rng`.

        Args:
            rng: The generator of random numbers.
            margin: The margin in standard units, which counts its calls.
            z: The points to start from, in standard units, (n, d).

        Returns:
            The segments, of length at most `width` if this was possible.
        """

    def sample(self, rng_key: RngKey, margin: Callable[[Any], Any], x: Float[AnyArray, "n d"]) -> BoundarySample:
        """Sample points of a boundary.

        Args:
            rng_key: A JAX random key.
            margin: From points (n, d) to (n,), positive inside and zero or negative outside, such as
                `kpp_gpec.class_margin` gives.
            x: Points from the distribution of the data, (n, d), such as the training rows.

        Returns:
            The points; none if the margin has the same sign at all points that were tried, as `status` then says.

        Raises:
            ValueError: If `x` is not a table of finite numbers, or `margin` does not return one number per point.
        """
        points = np.asarray(as_points(x), dtype=float)
        location, scale = points.mean(axis=0)[None], standard_deviations(points)[None]
        counted = CountedMargin(StandardizedMargin(margin, location, scale))
        brackets = self.search(numpy_generator(check_rng_key(rng_key)), counted, (points - location) / scale)
        kept = spread(brackets.midpoints, self.max_points, self.tolerance)  # in standard units: no feature dominates
        return BoundarySample(
            points=jnp.asarray(brackets.midpoints[kept] * scale + location, jnp.result_type(float)),
            widths=jnp.asarray(brackets.widths[kept], jnp.result_type(float)),
            num_pairs=brackets.num_pairs,
            num_converged=int((brackets.widths <= self.width).sum()),
            num_calls=counted.num_calls,
            num_evaluations=counted.num_evaluations,
            status=_status(brackets, len(kept), counted.num_evaluations),
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class StandardizedMargin:
    """A margin of points in standard units; a pytree, so that margins of equal shapes share compiled programs."""

    margin: Callable[[Any], Any]  # in the units of the data
    location: Float[AnyArray, "1 d"]  # the means of the features
    scale: Float[AnyArray, "1 d"]  # their standard deviations

    def __call__(self, z: Float[AnyArray, "n d"]) -> Any:
        """Return the margin at points."""
        return self.margin(z * self.scale + self.location)


def _status(brackets: Brackets, num_kept: int, num_evaluations: int) -> str:
    if not num_kept:
        return (
            f"no boundary found in the range of the points, with the margin called at {num_evaluations}; the model may "
            "predict one class only"
        )
    return f"{num_kept} points kept, of {len(brackets.inside)} crossings of {brackets.num_pairs} segments or starts"
