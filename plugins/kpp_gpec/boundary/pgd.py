"""The boundary sampler for neural classifiers, by adversarial examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.foundation.validation import count
from kpp.runtime.memory import check_count
from kpp.storage.serialization import data_class
from kpp_gpec.boundary.brackets import Brackets, CountedMargin, halve
from kpp_gpec.boundary.sampler import AbstractBoundarySampler

# The length of a step, in radii: the default of Foolbox, whose attacks the paper uses.
_STEP = 0.01 / 0.3
RADII = (2e-4, 5e-4, 8e-4, 1e-3, 1.5e-3, 2e-3, 3e-3, 1e-2, 1e-1, 3e-1, 5e-1, 1.0)


@data_class
class PGDSampler(AbstractBoundarySampler):
    r"""Samples the boundary of a model written in JAX between points and their adversaries.

    From a row z with margin m, a point on the other side is searched by projected gradient descent on the absolute
    value of m,

    .. math:: z' \leftarrow \Pi_\epsilon\bigl(z' - \tfrac{\epsilon}{30}\,\mathrm{sign}(m(z))\,
        \mathrm{sign}(\nabla m(z'))\bigr),

    from a random point of the box :math:`|z'_j - z_j| \leq \epsilon r_j`, onto which (and into the range of the rows)
    :math:`\Pi_\epsilon` projects; :math:`r_j` is the range of the feature, so that constant features do not change. It
    stops at the first point on the other side. The radii are tried in increasing order, and each row keeps the
    adversary of its smallest successful radius; segments between the two are bisected. With the margin of one class
    against the rest, rows of that class leave it for any other, and rows of others enter it, which are the paper's two
    attacks.

    The margin of logits works better than the margin of probabilities, whose gradient vanishes if a class is nearly
    certain.

    Args:
        max_points, width, tolerance: As for `AbstractBoundarySampler`.
        num_seeds: The number of initial rows on each side.
        radii: :math:`\epsilon`, in ranges of the features, increasing.
        num_steps: The number of steps of each descent.

    References:
        Hill et al. (2023), appendix D.1; Madry et al., "Towards deep learning models resistant to adversarial attacks",
        2018.
    """

    max_points: int = eqx.field(static=True, default=1000)
    width: float = eqx.field(static=True, default=1e-6)
    num_seeds: int = eqx.field(static=True, default=500)
    radii: tuple[float, ...] = eqx.field(static=True, default=RADII, converter=tuple)
    num_steps: int = eqx.field(static=True, default=40)
    tolerance: float = eqx.field(static=True, default=1e-4)

    def __check_init__(self) -> None:
        count(self.num_seeds, "num_seeds")
        count(self.num_steps, "num_steps")
        if not self.radii or min(self.radii) <= 0 or list(self.radii) != sorted(set(self.radii)):
            raise ValueError(f"`radii` must be positive and increase, got {self.radii}")

    def search(self, rng: np.random.Generator, margin: CountedMargin, z: Float[np.ndarray, "n d"]) -> Brackets:
        check_count(self.num_seeds, "num_seeds", 2 * z.shape[1])
        seeds, signs = _seeds(rng, margin, z, self.num_seeds)
        adversaries = self._attack(rng, margin, seeds, signs, (z.min(axis=0), z.max(axis=0)))
        crossed = margin.is_inside(adversaries) != (signs > 0)
        seeds, adversaries, inner = seeds[crossed], adversaries[crossed], (signs[crossed] > 0)[:, None]
        brackets = Brackets(np.where(inner, seeds, adversaries), np.where(inner, adversaries, seeds), len(signs))
        return halve(margin, brackets, self.width)

    def _attack(
        self,
        rng: np.random.Generator,
        margin: CountedMargin,
        seeds: Float[np.ndarray, "n d"],
        signs: Float[np.ndarray, " n"],
        box: tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]],
    ) -> Float[np.ndarray, "n d"]:
        """Return the adversaries of the seeds, or the last point tried if none was found."""
        dtype = jnp.result_type(float)
        low, high = (jnp.asarray(side, dtype)[None] for side in box)
        radii = jnp.asarray(self.radii, dtype)

        function = margin.function
        # A shared program would keep the arrays of a function that is no module in memory.
        shared = not any(map(callable, jax.tree.leaves(function)))
        attack = _attack if shared else eqx.filter_jit(lambda *arguments: _smallest(*arguments))

        rows = np.concatenate([signs[:, None], seeds, rng.uniform(-1.0, 1.0, size=seeds.shape)], axis=1)
        found = margin.through_jax(lambda chunk: attack(function, chunk, (low, high), radii, self.num_steps), rows)
        margin.count(len(seeds), int(found[:, 0].max()) * self.num_steps)
        return found[:, 1:].astype(float)


def _seeds(
    rng: np.random.Generator, margin: CountedMargin, z: Float[np.ndarray, "n d"], num_rows: int
) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, " k"]]:
    """Draw at most `num_rows` rows of each side; return them and their signs."""
    is_inside = margin.is_inside(z)
    sides = [np.flatnonzero(is_inside), np.flatnonzero(~is_inside)]
    chosen = np.concatenate([rng.choice(side, min(num_rows, len(side)), replace=False) for side in sides])
    return z[chosen], np.where(is_inside[chosen], 1.0, -1.0)


def _smallest(
    margin: Callable[[Any], Any],
    rows: Float[Array, "n e"],
    box: tuple[Float[Array, "1 d"], Float[Array, "1 d"]],
    radii: Float[Array, " r"],
    num_steps: int,
) -> Float[Array, "n f"]:
    """Return in the first column the number of radii tried, then the adversary at the smallest successful radius.

    A row holds the sign of the margin at a start, the start, and the noise of the starts in the boxes.
    """
    signs = rows[:, 0]  # one array of rows, because `through_jax` cuts one array into chunks
    starts, noise = jnp.split(rows[:, 1:], 2, axis=1)

    def is_open(state: tuple[Array, Array, Array]) -> Array:
        number, _, crossed = state
        return (number < len(radii)) & ~crossed.all()

    def try_next(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        number, points, crossed = state
        reach = radii[number] * (box[1] - box[0])
        ball = jnp.maximum(starts - reach, box[0]), jnp.minimum(starts + reach, box[1])
        tried, success = _descend(margin, jnp.clip(starts + reach * noise, *ball), signs, ball, reach, num_steps)
        return number + 1, jnp.where(crossed[:, None], points, tried), crossed | success

    begin = (jnp.asarray(0), starts, jnp.zeros(len(starts), bool))
    number, points, _ = jax.lax.while_loop(is_open, try_next, begin)
    return jnp.concatenate([jnp.full((len(starts), 1), number, starts.dtype), points], axis=1)


_attack = eqx.filter_jit(_smallest)


def _descend(
    margin: Callable[[Any], Any],
    points: Float[Array, "n d"],
    signs: Float[Array, " n"],
    ball: tuple[Float[Array, "n d"], Float[Array, "n d"]],
    reach: Float[Array, "1 d"],
    num_steps: int,
) -> tuple[Float[Array, "n d"], Any]:
    """Take steps of equal length in each feature towards the other side; also return whether they arrive."""

    def total(points: Array) -> tuple[Array, Array]:
        values = margin(points)
        return jnp.sum(values), values

    def crossed(values: Array) -> Array:
        return (values > 0.0) != (signs > 0.0)

    def move(_: Array, points: Array) -> Array:
        gradient, values = jax.grad(total, has_aux=True)(points)
        moved = jnp.clip(points - signs[:, None] * _STEP * reach * jnp.sign(gradient), *ball)
        return jnp.where(crossed(values)[:, None], points, moved)

    points = jax.lax.fori_loop(0, num_steps, move, points)
    return points, crossed(margin(points))
