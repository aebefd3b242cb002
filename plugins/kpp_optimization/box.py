"""The maximum of a function over a box: of a drawn function for Thompson sampling, or of any acquisition function."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.stats import qmc

from kpp.foundation.validation import as_finite_array, count
from kpp.runtime.random import numpy_generator
from kpp.typing import RngKey


def maximize(
    rng_key: RngKey,
    function: Callable[[Array], Array],
    low: ArrayLike,
    high: ArrayLike,
    *,
    num_candidates: int = 1024,
    num_starts: int = 8,
) -> tuple[Float[np.ndarray, " d"], float]:
    r"""Find the maximum of a function over a box, :math:`\arg\max_{l \le x \le h} f(x)`.

    The best points of a scrambled Sobol sequence are improved by L-BFGS-B with JAX's gradients. The result is a local
    maximum, at least as high as all candidates. With a function from `kpp_models.sample_function` it is a step of
    Thompson sampling.

    Args:
        rng_key: A JAX random key.
        function: f, from points (p, d) to values (p,), which JAX can trace and differentiate.
        low: l, (d,).
        high: h, (d,), greater than `low`.
        num_candidates: The number of points at which the function is evaluated first.
        num_starts: The number of the best of them that are improved.

    Returns:
        The point, (d,), and its value.

    Raises:
        ValueError: If the bounds are not finite vectors of one length, with `low` below `high`, or a number is not
            positive.
        FloatingPointError: If the function is not finite at a candidate.

    Example:
        >>> from kpp_optimization import maximize
        >>> point, _ = maximize(jax.random.key(0), lambda x: -(x[:, 0] - 0.5) ** 2, [-1.0], [1.0])
        >>> point.round(3).tolist()
        [0.5]

    References:
        Wilson, Borovitskiy, Terenin, Mostowsky and Deisenroth, Efficiently sampling functions from Gaussian process
        posteriors, 2020, section 5.1.
    """
    lowest, highest = np.asarray(as_finite_array(low, "low")), np.asarray(as_finite_array(high, "high"))
    if lowest.ndim != 1 or lowest.shape != highest.shape or not (lowest < highest).all():
        raise ValueError(f"`low` must be a vector below `high`, coordinate by coordinate, got {lowest} and {highest}")
    count(num_starts, "num_starts", most=count(num_candidates, "num_candidates"), most_is="`num_candidates`")
    sobol = qmc.Sobol(lowest.size, rng=numpy_generator(rng_key))
    unit = sobol.random_base2(int(np.ceil(np.log2(num_candidates))))[:num_candidates]  # a power of 2 keeps its balance
    candidates = qmc.scale(unit, lowest, highest)
    values = np.asarray(_values(function, jnp.asarray(candidates)))
    if not np.isfinite(values).all():
        raise FloatingPointError(f"`function` must be finite in the box, got {values[~np.isfinite(values)][0]}")

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = _loss(function, jnp.asarray(x))
        return float(value), np.asarray(slope, dtype=float)

    starts = candidates[np.argsort(-values)[:num_starts]]
    bounds = list(zip(lowest, highest, strict=True))
    ends = [minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds) for start in starts]
    best = min(ends, key=lambda end: end.fun)
    return np.clip(best.x, lowest, highest), -float(best.fun)


# The function is an argument, so that drawn functions of equal shapes share the compiled programs.
@eqx.filter_jit
def _values(function: Callable[[Array], Array], x: Float[Array, "p d"]) -> Float[Array, " p"]:
    return function(x)


@eqx.filter_jit
def _loss(function: Callable[[Array], Array], x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, " d"]]:
    return jax.value_and_grad(lambda point: -function(point[None])[0])(x)
