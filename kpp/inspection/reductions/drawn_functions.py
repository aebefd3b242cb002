"""Draws of the function of a Gaussian process, as functions of an RKHS."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp import linalg
from kpp.functionals import GPPosterior
from kpp.functionals.sections import join_points
from kpp.functions import RKHSFunction
from kpp.gp.toolkit import draw_gaussian
from kpp.runtime.random import numpy_generator
from kpp.typing import RngKey

# How many rows with features of two rows a function is drawn at, in addition to the points of the posterior.
_MIXED = 200


def draw_functions(
    posterior: GPPosterior, rng_key: RngKey, rows: Float[np.ndarray, "p d"], num_draws: int
) -> RKHSFunction:
    r"""Draw functions from the posterior of a Gaussian process.

    The values at points Z are drawn jointly from their law and interpolated, :math:`f = \mu + k(\cdot, Z) K_{ZZ}^{-1}
    (f_Z - \mu_Z)`. Z are the points of the posterior and 200 rows with features of two of `rows`, as coalitions have
    them. The deviation of f elsewhere from this interpolation is left out. Each draw of the posterior gives one
    function, or `num_draws` functions are drawn; their ``batch_shape`` is (chain, draw). Raises ValueError if the
    posterior covariance is not positive definite, as may be in single precision.
    """
    single = not posterior.batch_shape
    points = join_points([posterior.mean.points, jnp.asarray(_mixed_rows(rng_key, rows))])
    shape = (1, num_draws) if single else posterior.batch_shape
    keys = jax.random.split(rng_key, shape)

    def deviations(draw: GPPosterior, keys: Array) -> Float[Array, "s q"]:
        gram, n = draw.mean.kernel.gram(points), len(draw.root)
        scale = jnp.mean(jnp.diagonal(gram))
        factor = linalg.cholesky(linalg.add_diagonal(gram, linalg.max_relative_jitter(gram.dtype) * scale))
        whitened = jnp.matmul(gram[:n, :n], draw.root, precision="highest")
        covariance = gram[:n, :n] - jnp.matmul(whitened, whitened.T, precision="highest")

        def draw_once(key: Array) -> Array:
            # The data say nothing of the values at the mixed rows that those at the first points do not say.
            known, mixed = jax.random.split(key)
            values = draw_gaussian(known, jnp.zeros(n, gram.dtype), covariance, scale)
            noise = jax.random.normal(mixed, (len(gram) - n,), gram.dtype)
            return jnp.concatenate([linalg.solve_lower(factor[:n, :n], values), noise])

        return linalg.cho_solve(factor, factor @ jax.lax.map(draw_once, keys).T).T

    if single:
        found = jax.jit(deviations)(posterior, keys[0])[None]
    else:
        found = posterior.mean.map_draws(
            lambda mean, root, key: deviations(GPPosterior(mean, root), key[None])[0], posterior.root, keys
        )
    if not np.isfinite(np.asarray(found)).all():
        raise ValueError(
            f"`predictor` has a posterior covariance that is not positive definite in {found.dtype}; "
            'call jax.config.update("jax_enable_x64", True) at the top of the program, and fit again'
        )
    mean = posterior.mean
    coefficients = jnp.broadcast_to(mean.coefficients, (*shape, mean.num_points))
    coefficients = found.at[..., : mean.num_points].add(coefficients)
    intercept = jnp.broadcast_to(mean.intercept, shape)
    return RKHSFunction.over_draws(mean.kernel, points, coefficients, intercept, batch_shape=shape).unfold()


def _mixed_rows(rng_key: RngKey, rows: Float[np.ndarray, "p d"]) -> Float[np.ndarray, "q d"]:
    """Return rows with a random part of the features of one row, and the others of another row."""
    generator = numpy_generator(rng_key)
    first, second = rows[generator.integers(len(rows), size=(2, _MIXED))]
    sizes = generator.integers(rows.shape[1] + 1, size=(_MIXED, 1))
    present = np.argsort(generator.random((_MIXED, rows.shape[1])), axis=1) < sizes
    return np.where(present, first, second)
