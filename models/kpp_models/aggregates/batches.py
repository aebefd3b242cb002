"""Some of the bags of a model's data, for steps of stochastic inference that read only these; traceable by JAX."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kpp_models.aggregates.data import Data


def take_bags(data: Data, rows: Int[Array, " b"]) -> dict[str, Any]:
    """Return what the prior of the means of b bags depends on, which may be repeated, and of one more bag.

    The number of points must not depend on the bags, so each bag takes as many places as the largest. The places that
    it leaves over form the additional bag, the last, which no target depends on.
    """
    points, index, sizes = _gather(data["x"], data["sizes"], rows, data["offsets"])
    part: dict[str, Any] = {"x": points, "bag_of": index, "sizes": sizes}
    part |= {"covariates": None, "coincidence": None, "inducing": None}
    if data["coincidence"] is not None:
        part["coincidence"] = jnp.pad(data["coincidence"][rows[:, None], rows[None, :]], (0, 1))
    if data["inducing"] is not None:
        thin = data["inducing"]
        gathered = _gather(thin["points"], thin["sizes"], rows, thin["offsets"])
        part["inducing"] = dict(zip(("points", "index", "sizes"), gathered, strict=True))
    return part


def _gather(
    points: Float[Array, "n d"], sizes: Int[Array, " N"], rows: Int[Array, " b"], offsets: Int[Array, " c"]
) -> tuple[Float[Array, "k d"], Int[Array, " k"], Int[Array, " b_and_1"]]:
    """Return the points of some bags, the bag of each, and the sizes of the bags; the last bag is the one to drop."""
    taken, count = sizes[rows], rows.shape[0]
    starts = (jnp.cumsum(sizes) - sizes)[rows]
    inside = offsets[None, :] < taken[:, None]
    places = starts[:, None] + jnp.minimum(offsets[None, :], taken[:, None] - 1)
    index = jnp.where(inside, jnp.arange(count)[:, None], count).ravel()
    order = jnp.argsort(index, stable=True)
    # One more point keeps the additional bag from being empty.
    chosen = jnp.concatenate([places.ravel()[order], places[0, :1]])
    left = jnp.sum(~inside) + 1
    return points[chosen], jnp.append(index[order], count), jnp.append(taken, left)
