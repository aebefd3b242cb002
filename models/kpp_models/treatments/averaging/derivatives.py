r"""The average derivative of a regression with respect to one column.

.. math:: \theta = \sum_i w_i\, \partial_t f(t_i, z_i), \qquad
    \mathrm{Var}\, \theta = \sum_{ij} w_i w_j\, \partial_t \partial_{t'} c\bigl((t_i, z_i), (t_j, z_j)\bigr)

The derivative of a Gaussian process is Gaussian, with the derivatives of its mean and covariance. JAX computes them
from the kernel, without differences.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.gp import AbstractPointwiseLikelihood
from kpp.kernels import AbstractKernel
from kpp.typing import RngKey
from kpp_models.treatments.averaging.joint_draws import root
from kpp_models.treatments.averaging.mean_response import mean_response

# A step in units of the column's spread, and the largest error of a variance that rounding makes, in units of it.
_STEP = 1e-3
_ROUNDING = 1e-9


@eqx.filter_jit
def average_derivative_laws(
    posterior: GPPosterior, rows: Float[Array, "n d"], column: int, weights: Float[Array, "*batch b n"]
) -> tuple[Float[Array, "*batch b"], Float[Array, "*batch b"]]:
    """Return means and variances (b,) of the average derivative, exactly, led by the draws of the posterior.

    The derivative is with respect to one column, and there are b sets of weights of the rows for every draw.
    """

    def of_draw(mean: RKHSFunction, root: Array, loads: Array) -> tuple[Array, Array]:
        reduced = loads @ _slopes(GPPosterior(mean, root).whitened, rows, column)
        prior = jnp.einsum("bn,bn->b", loads @ _slopes_of_both(mean.kernel, rows, column), loads, precision="highest")
        variances = prior - jnp.sum(jnp.square(reduced), axis=-1)
        return loads @ _slopes(mean, rows, column), jnp.maximum(variances, 0.0)

    return posterior.mean.map_draws(of_draw, posterior.root, weights)


@eqx.filter_jit
def average_response_derivatives(
    rng_key: RngKey,
    posterior: GPPosterior,
    likelihood: AbstractPointwiseLikelihood,
    rows: Float[Array, "n d"],
    column: int,
    weights: Float[Array, "*batch b n"],
) -> Float[Array, "*batch b"]:
    r"""Draw the average derivative of the mean response, :math:`\sum_i w_i\, h'(f_i)\, \partial_t f_i`, (b,).

    The values of f and its derivatives at all rows are drawn jointly, once for each of b sets of weights and each draw
    of the hyperparameters, which posterior and likelihood share.
    """
    arrays, static = eqx.partition(likelihood, eqx.is_array)
    keys = jax.random.split(rng_key, posterior.batch_shape)

    def of_draw(mean: RKHSFunction, root_: Array, law: PyTree, loads: Array, key: RngKey) -> Array:
        known = eqx.combine(law, static)
        moments, covariance = _joint_law(GPPosterior(mean, root_), rows, column)
        white = jax.random.normal(key, (len(loads), len(moments)), moments.dtype)
        both = moments[None] + white @ root(covariance).T
        values, slopes = both[:, : len(rows)], both[:, len(rows) :]

        def of_one(pair: tuple[Array, Array]) -> Array:
            return jax.jvp(lambda f: mean_response(known, f), (pair[0],), (pair[1],))[1]

        return jnp.sum(loads * jax.lax.map(of_one, (values, slopes)), axis=-1)

    return posterior.mean.map_draws(of_draw, posterior.root, arrays, weights, keys)


def refuse_rough(mean: RKHSFunction, rows: Float[np.ndarray, "n d"], column: int) -> None:
    """Raise ValueError if the functions of a kernel, that of a function, have no derivative with respect to a column.

    The variance of a difference quotient tends to the second derivative of the kernel if there is one, and to infinity
    if there is none.
    """
    step = _STEP * rows[:, column].std()
    two = jnp.asarray(rows[[0, 0]]).at[1, column].add(step)
    gram, slopes = _near_one_row(mean, two, column)
    variances = gram[..., 0, 0] + gram[..., 1, 1] - 2 * gram[..., 0, 1]
    if bool(jnp.any(variances > 2 * jnp.abs(slopes[..., 0, 0]) * step**2 + _ROUNDING * gram[..., 0, 0])):
        raise ValueError(
            f"`derivative` needs a kernel whose functions have derivatives, got {type(mean.kernel).__name__} with a "
            "kink where two points coincide; use RBF, Matern32 or Matern52"
        )


@eqx.filter_jit
def _near_one_row(mean: RKHSFunction, two: Float[Array, "2 d"], column: int) -> tuple[Array, Array]:
    """Return the kernel matrices between two rows, and their second derivatives, for all draws."""
    return mean.map_draws(lambda draw: (draw.kernel.gram(two), _slopes_of_both(draw.kernel, two, column)))


def _joint_law(
    posterior: GPPosterior, rows: Float[Array, "n d"], column: int
) -> tuple[Float[Array, " k"], Float[Array, "k k"]]:
    """Return mean (2n,) and covariance (2n, 2n) of the values and the derivatives at the rows."""
    kernel = posterior.mean.kernel
    mixed = _slopes(lambda points: kernel(points, rows), rows, column)
    prior = jnp.block([[kernel.gram(rows), mixed.T], [mixed, _slopes_of_both(kernel, rows, column)]])
    whitened = jnp.concatenate([posterior.whitened(rows), _slopes(posterior.whitened, rows, column)])
    mean = jnp.concatenate([posterior.mean(rows), _slopes(posterior.mean, rows, column)])
    return mean, prior - jnp.matmul(whitened, whitened.T, precision="highest")


def _slopes(function: Callable[[Array], Array], rows: Float[Array, "n d"], column: int) -> Array:
    """Return the derivatives with respect to one column of a function that maps each row on its own."""
    direction = jnp.zeros_like(rows).at[:, column].set(1.0)
    return jax.jvp(function, (rows,), (direction,))[1]


def _slopes_of_both(kernel: AbstractKernel, rows: Float[Array, "n d"], column: int) -> Float[Array, "n n"]:
    """Return the second derivatives of a kernel, one with respect to the column of each of its points."""
    return _slopes(lambda one: _slopes(lambda two: kernel(one, two), rows, column), rows, column)
