"""Products with a kernel matrix of n points that is never in memory as a whole."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.kernels import AbstractKernel
from kpp.runtime.batching import even_size, split_rows, split_weights
from kpp.typing import Points

_SIDE = 512  # rows of a tile of the matrix, 2 MB, which the caches of a core can hold


def kernel_product(kernel: AbstractKernel, points: Points, columns: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Return the product of the kernel matrix with columns, by square tiles of the matrix.

    Each tile above the diagonal is computed once, and used for the tile below the diagonal, too. JAX can differentiate
    the product any number of times; the derivatives compute the tiles anew.
    """
    num_rows = columns.shape[0]
    side = even_size(num_rows, _SIDE)
    rows = split_rows(points, side)
    parts = split_weights(columns, side)  # 0 for the copies of the last point that fill up the last tile

    def block(number: Array) -> Points:
        return jax.tree.map(lambda leaf: leaf[number], rows)

    @jax.checkpoint  # otherwise derivatives would keep all tiles
    def multiply_tile(i: Array, j: Array) -> tuple[Array, Array]:
        tile = kernel(block(i), block(j))
        return tile @ parts[j], jnp.where(i == j, 0.0, tile.T @ parts[i])  # a tile on the diagonal counts once

    def add_tile(total: Array, pair: tuple[Array, ...]) -> tuple[Array, None]:
        i, j = pair
        above, below = multiply_tile(i, j)
        return total.at[i].add(above).at[j].add(below), None

    pairs = tuple(jnp.asarray(numbers) for numbers in np.triu_indices(parts.shape[0]))
    total = jax.lax.scan(add_tile, jnp.zeros_like(parts), pairs)[0]
    return total.reshape(-1, columns.shape[1])[:num_rows]
