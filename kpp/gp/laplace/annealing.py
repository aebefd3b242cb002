"""Annealed importance sampling, from Laplace's approximation to the law that it approximates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp import linalg
from kpp.typing import RngKey

_NUM_STEPS = 32
_MAX_SHRINKS = 60  # each shrinks the bracket by a factor of about 2, so that it ends at the present point


def anneal_from_laplace(
    rng_key: RngKey,
    log_density: Callable[[Array], Array],
    center: Float[Array, " n"],
    precision: Float[Array, "n n"],
    log_evidence: Float[Array, ""],
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    r"""Draw whitened latent values z from their posterior, with the log of an importance weight.

    .. math:: p(z \mid y) \propto p(y \mid z)\, N(z \mid 0, I), \qquad q(z) = N(z \mid c, H^{-1})

    The draw starts from the approximation q. The mean of the weights is the ratio of the exact evidence to the
    approximate one, so that weighted draws of hyperparameters and z are exact if the hyperparameters are weighted with
    the approximate evidence.

    Args:
        rng_key: A JAX random key.
        log_density: :math:`\log p(y \mid z)`, a function of z, (n,).
        center: c, the mode, (n,).
        precision: H, the negated second derivative of the log posterior at the mode, (n, n).
        log_evidence: The log of the approximate evidence,
            :math:`p(y \mid c)\, N(c \mid 0, I)\, (2 \pi)^{n/2} |H|^{-1/2}`.

    Returns:
        z, (n,), and the log of the weight.
    """
    factor = linalg.cholesky(precision, what="the precision of Laplace's approximation")
    spread = linalg.solve_lower(factor, jnp.eye(len(center), dtype=center.dtype)).T
    constant = linalg.half_log_determinant(factor) + log_evidence

    def log_ratio(noise: Array) -> Array:
        white = center + spread @ noise
        return log_density(white) - 0.5 * (jnp.dot(white, white) - jnp.dot(noise, noise)) - constant

    noise, log_weight = anneal(rng_key, log_ratio, len(center), center.dtype)
    return center + spread @ noise, log_weight


def anneal(
    rng_key: RngKey, log_ratio: Callable[[Array], Array], size: int, dtype: Any, *, num_steps: int = _NUM_STEPS
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    r"""Draw from :math:`p(u) \propto N(u \mid 0, I)\, r(u)`, with an importance weight.

    The draw goes through the laws :math:`p_t \propto N(u \mid 0, I)\, r(u)^{\beta_t}`, :math:`\beta_t = (t / T)^2`, by
    one step of elliptical slice sampling for each of them, and

    .. math:: \log w = \sum_{t=0}^{T-1} (\beta_{t+1} - \beta_t) \log r(u_t), \qquad
        E\, w = \int N(u \mid 0, I)\, r(u)\, du

    Weighted draws have the law p, for every T; the variance of log w is about proportional to 1 / T.

    References:
        R. M. Neal (2001). Annealed importance sampling. Statistics and Computing 11.
    """
    start_key, *_ = keys = jax.random.split(rng_key, num_steps + 1)
    betas = (jnp.arange(num_steps + 1, dtype=dtype) / num_steps) ** 2

    def step(state: tuple[Array, Array, Array], item: tuple[Array, Array, Array]) -> tuple[tuple, None]:
        u, value, log_weight = state
        key, before, after = item
        u, value_after = elliptical_slice_step(key, lambda at: after * log_ratio(at), u, after * value)
        # Never 0 / 0: only the first `before` is 0, and no `after`.
        return (u, value_after / after, log_weight + (after - before) * value), None

    start = jax.random.normal(start_key, (size,), dtype)
    first = (start, log_ratio(start), jnp.zeros((), dtype))
    (u, _, log_weight), _ = jax.lax.scan(step, first, (jnp.stack(keys[1:]), betas[:-1], betas[1:]))
    return u, log_weight


def elliptical_slice_step(
    rng_key: RngKey, log_ratio: Callable[[Array], Array], u: Float[Array, " n"], value: Float[Array, ""]
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    r"""Take one step of a Markov chain with the invariant density :math:`N(u \mid 0, I)\, r(u)`.

    References:
        I. Murray, R. P. Adams, D. J. C. MacKay (2010). Elliptical slice sampling. AISTATS.
    """
    normal_key, height_key, angle_key, loop_key = jax.random.split(rng_key, 4)
    other = jax.random.normal(normal_key, u.shape, u.dtype)
    height = value + jnp.log(jax.random.uniform(height_key, (), u.dtype))
    angle = jax.random.uniform(angle_key, (), u.dtype, 0.0, 2.0 * jnp.pi)

    def at(angle: Array) -> Array:
        return jnp.cos(angle) * u + jnp.sin(angle) * other

    def outside(state: tuple) -> Array:
        _, _, _, found, count = state
        return ~(found > height) & (count < _MAX_SHRINKS)

    def shrink(state: tuple) -> tuple:
        angle, low, high, _, count = state
        # Toward 0, the angle of u, which is inside.
        low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
        new = jax.random.uniform(jax.random.fold_in(loop_key, count), (), u.dtype, low, high)
        return new, low, high, log_ratio(at(new)), count + 1

    first = (angle, angle - 2.0 * jnp.pi, angle, log_ratio(at(angle)), jnp.asarray(0))
    angle, _, _, found, _ = jax.lax.while_loop(outside, shrink, first)
    inside = found > height
    # U stays if the bracket ended before a point was inside.
    return jnp.where(inside, at(angle), u), jnp.where(inside, found, value)
