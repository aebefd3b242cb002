"""The options of an effect of a treatment: where, in which rows, and with how many draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from kpp.typing import RngKey

NUM_DRAWS = 1000


@dataclasses.dataclass(frozen=True)
class EffectOptions:
    """Options of an effect, as for `kpp_models.causal_effect`."""

    at: Sequence[Any] | None = None  # the values of the treatment; None for the defaults
    rows: Bool[np.ndarray, " n"] | None = None  # of a subgroup; None for all
    num_draws: int | None = None  # the least number; None for the default of the method
    bootstrap: bool = True  # whether the law of the covariates is uncertain
    derivative: bool = False

    def subgroup(self, num_rows: int) -> Bool[np.ndarray, " n"]:
        """Return the mask of the subgroup, (n,), or raise ValueError if `rows` is not a mask of this length."""
        mask = np.ones(num_rows, dtype=bool) if self.rows is None else np.asarray(self.rows)
        if mask.dtype != bool or mask.shape != (num_rows,) or not mask.any():
            raise ValueError(
                f"`rows` must be booleans of shape ({num_rows},), at least one of them True, got dtype {mask.dtype} "
                f"and shape {mask.shape}"
            )
        return mask

    def weights(self, rng_key: RngKey, shape: tuple[int, ...], mask: Bool[np.ndarray, " n"]) -> jax.Array:
        r"""Return weights of rows that sum to 1: Dirichlet(1, ..., 1) on the rows of the subgroup, or equal ones."""
        shape = (*shape, len(mask))
        # Independent exponentials over their sum are Dirichlet(1, ..., 1), also within a subgroup.
        numbers = jax.random.exponential(rng_key, shape) if self.bootstrap else jnp.ones(shape)
        numbers = jnp.where(jnp.asarray(mask), numbers, 0.0)
        return numbers / jnp.sum(numbers, axis=-1, keepdims=True)
