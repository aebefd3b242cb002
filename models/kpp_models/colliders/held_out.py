r"""Exact leave-one-out predictions and variances of projected fits, without refits."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.linalg.toolkit import DenseRidge


class HeldOutTargets(NamedTuple):
    """The targets :math:`t^{(i)} = A w_i + r^{(i)}` of the fits without point i, with few columns A."""

    columns: Float[Array, "n r"]  # A
    weights: Float[Array, "n r"]  # the vectors w_i as rows
    rest: Float[Array, "n n"] | None = None  # the vectors r^(i) as columns, or None for zeros


def held_out_predictions(cross: Float[Array, "n n"], system: DenseRidge, targets: HeldOutTargets) -> Float[Array, " n"]:
    r"""Return the prediction at each point of a linear fit to all other targets, (n,).

    .. math:: \hat t_i = G_{i,-i} (C_{-i,-i})^{-1} t^{(i)}_{-i} = (H t^{(i)})_i - H_{ii}\, (M t^{(i)})_i / M_{ii}

    with :math:`M = C^{-1}` and :math:`H = G M`. G is the kernel matrix between the points of predictions and those of
    the fit, C the matrix of the system, ridge included. The entry i of the targets :math:`t^{(i)}` has no effect. H is
    formed only if the targets have a `rest`.
    """
    inverse = system.inverse()
    solved = inverse @ targets.columns
    predicted = jnp.sum((cross @ solved) * targets.weights, axis=1)
    at_left_out = jnp.sum(solved * targets.weights, axis=1)
    if targets.rest is not None:
        predicted = predicted + jnp.sum((cross @ inverse) * targets.rest.T, axis=1)
        at_left_out = at_left_out + jnp.sum(inverse * targets.rest.T, axis=1)
    return predicted - jnp.sum(cross * inverse, axis=1) * at_left_out / jnp.diagonal(inverse)  # - H_ii (M t)_i / M_ii


def held_out_variances(prior: Float[Array, " n"], cross: Float[Array, "n n"], system: DenseRidge) -> Float[Array, " n"]:
    r"""Return the variances (n,) of the function at each point given all other targets, not below 0.

    .. math:: v_i = k_i - G_{i,-i} (C_{-i,-i})^{-1} G_{i,-i}^\top = k_i - (H G^\top)_{ii} + H_{ii}^2 / M_{ii}

    The arguments are the prior variances k, the covariances G with the targets, and the system with their covariance C.
    """
    inverse = system.inverse()
    hat = cross @ inverse
    # (H G^T)_ii - H_ii^2 / M_ii: what all targets explain, less what target i alone adds.
    explained = jnp.sum(hat * cross, axis=1) - jnp.diagonal(hat) ** 2 / jnp.diagonal(inverse)
    return jnp.maximum(prior - explained, 0.0)
