r"""The observed site of a model whose latent values are sampled: at all points, or at inducing points.

The same two functions serve observations at points, of pairs, and of bag means: a model says how the latent values
depend on the whitened values z, and with which likelihood they are observed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpyro
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.gp.laws.distributions import FeatureObservations, LatentObservations
from kpp.gp.likelihoods.base import AbstractLikelihood
from kpp.typing import AnyArray

#: The site of the whitened latent values z at the observations: f = m + L z with K = L L^T.
WHITENED = "latent_whitened"
#: The site of the whitened values z at inducing points.
INDUCING = "inducing_whitened"
#: The sites that are values of a function, or points at which it has them; see `AbstractModel.latent_sites`.
LATENT_SITES = (WHITENED, INDUCING, "inducing_points")
#: The name of the values f at the observations in the group latent of ArviZ.
FUNCTION_VALUES = "function_values"


class LatentParts(NamedTuple):
    r"""How the latent values of b observations depend on whitened values z at inducing points.

    .. math:: f_{il} \sim N\bigl(c_{il} + s_l\, \phi_i^\top z_l,\; s_l^2\, r_i\bigr)

    Attributes:
        center: c, a number, (b,) or (b, l).
        features: :math:`\phi`, (b, w).
        rest: r, (b,).
        scale: s, (l,), or None for 1; only with l latent values per observation.
    """

    center: AnyArray | float
    features: Float[Array, "b w"]
    rest: Float[Array, " b"]
    scale: Float[Array, " l"] | None = None


def observe_sampled(
    likelihood: AbstractLikelihood, latent: Callable[[Array], Array], shape: tuple[int, ...], y: Array | None
) -> None:
    """Sample whitened latent values, site ``latent_whitened``, and observe the site ``y`` given them."""
    white = numpyro.sample(WHITENED, _standard(shape))
    with numpyro.plate("instance", shape[0]):
        numpyro.sample("y", LatentObservations(likelihood, latent(white)), obs=y)


def observe_inducing(
    likelihood: AbstractLikelihood,
    parts: Callable[[Array], LatentParts],
    shape: tuple[int, ...],
    num_rows: int,
    y: Array | None,
    minibatch: int | None,
) -> None:
    r"""Sample whitened values at inducing points, and observe ``y`` with all other latent values integrated out.

    The density of the site ``y`` is the term :math:`E \log p(y_i \mid f_i)` of the evidence lower bound.

    Args:
        likelihood: The likelihood of the n observations, without them.
        parts: A function from the numbers of b rows to the parts of their latent values.
        shape: The shape of the values at w inducing points, (w,) or (w, l): site ``inducing_whitened``.
        num_rows: n.
        y: The observations, with n rows, or None to draw them.
        minibatch: The number of rows of a subsample; None for all rows.
    """
    white = numpyro.sample(INDUCING, _standard(shape))
    size = None if minibatch is None else min(minibatch, num_rows)
    with numpyro.plate("instance", num_rows, subsample_size=size) as rows:
        center, features, rest, scale = parts(rows)
        law = FeatureObservations(likelihood.take(rows), center, features, white, rest, scale, whitened=INDUCING)
        numpyro.sample("y", law, obs=None if y is None else y[rows])


def _standard(shape: tuple[int, ...]) -> Any:
    return dist.Normal(0.0, 1.0).expand(list(shape)).to_event(len(shape))
