"""One block of rows, explained by a task of Dask in this process or another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from kpp.lazy.blocks import refuse_bad_rows
from kpp.lazy.traveling import TravelingFunction
from kpp.typing import RngKey

Explain = Callable[[Any, "RngKey | None"], xr.Dataset]


class BlockTask:
    """A function that explains rows, which travels to other processes apart from the blocks.

    The random key is that of the whole table, or None. Only the `columns` of data frames are read; None stands for all.
    """

    def __init__(self, explain: Explain, rng_key: RngKey | None, columns: tuple[str, ...] | None) -> None:
        self._explain = TravelingFunction(explain)
        self._key = None if rng_key is None else np.asarray(jax.random.key_data(_typed(rng_key)))
        self._implementation = None if rng_key is None else str(jax.random.key_impl(_typed(rng_key)))
        self._columns = columns

    @property
    def key_numbers(self) -> list[int] | None:
        """The numbers of the random key of the whole table."""
        return None if self._key is None else self._key.tolist()

    def explain(self, block: Any, number: int, start: int, size: int) -> xr.Dataset:
        """Return the explanation of a block.

        Its random key is made from its `number`, and `start` is the position of its first row in the table. A block of
        less than `size` rows is filled up with copies of its last row, so that all blocks have one compiled program and
        are treated alike.
        """
        refuse_bad_rows(block, self._columns, start)
        chosen = np.minimum(np.arange(size), len(block) - 1)
        rows = block if len(block) == size else block.iloc[chosen] if hasattr(block, "columns") else block[chosen]
        dataset: xr.Dataset = self._explain(rows, self._key_of(number))
        return dataset

    def _key_of(self, number: int) -> RngKey | None:
        if self._key is None:
            return None
        return jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(self._key), impl=self._implementation), number)


def _typed(rng_key: RngKey) -> RngKey:
    return rng_key if jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(rng_key)
