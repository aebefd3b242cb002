"""Newton's method for the mode of a log-concave density: the loop, and the size of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.foundation.validation import is_concrete

#: The largest number of steps.
MAX_STEPS = 100
_HALVINGS = 12  # step sizes from 1 to 2**-11


def newton_mode(
    step: Callable[[Array], tuple[Array, Array]], start: Float[Array, " k"], *, need: str = ""
) -> Float[Array, " k"]:
    """Repeat a step of Newton's method, which also returns `relative_change`, until the latent values do not change.

    Returns:
        The parameters at the mode; NaN if they are not reached in 100 steps.

    Raises:
        ValueError: If they are concrete and not reached, and a message says what is needed.
    """
    # Newton's method converges quadratically: a last move of this size leaves an error of about its square.
    tolerance = jnp.finfo(start.dtype).eps ** 0.375

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        _, change, iteration = state
        return (change > tolerance) & (iteration < MAX_STEPS)

    first = (start, jnp.asarray(jnp.inf, start.dtype), jnp.asarray(0))
    found, change, _ = jax.lax.while_loop(unfinished, lambda state: (*step(state[0]), state[2] + 1), first)
    mode = jnp.where(change <= tolerance, found, jnp.nan)
    if need and is_concrete(mode) and not bool(jnp.all(jnp.isfinite(mode))):
        raise ValueError(f"Newton's method did not reach the mode of the latent values in {MAX_STEPS} steps; {need}")
    return mode


def step_size(objective: Callable[[Array], Array], dtype: Any) -> Float[Array, ""]:
    """Return the size of a step: 1 if a full step does not decrease the objective, else the best of its halvings."""
    sizes = jnp.asarray(0.5, dtype) ** jnp.arange(_HALVINGS, dtype=dtype)
    values = jax.vmap(objective)(sizes)
    present = objective(jnp.zeros((), dtype))
    # Near the mode the objective is constant up to rounding; without slack, rounding would reject full steps there.
    slack = 100 * jnp.finfo(dtype).eps * (1.0 + jnp.abs(present))
    return jnp.where(values[0] >= present - slack, 1.0, sizes[jnp.argmax(values)])


def relative_change(move: Float[Array, " n"], latent: Float[Array, " n"]) -> Float[Array, ""]:
    """Return the largest change of the latent values, relative to one plus the largest latent value."""
    return jnp.max(jnp.abs(move)) / (1.0 + jnp.max(jnp.abs(latent)))
