"""The prior of many lengthscales of which few matter: sparse axis-aligned subspaces (SAAS)."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample

from kpp.foundation.validation import count, positive
from kpp.typing import AnyArray, RngKey

_NODES = 512  # of the integral over the shared scale; the tests measure its error


class SAASLengthscales(dist.Distribution):
    r"""A prior of the lengthscales of d features, most of which have no influence; for `RBF` and other ARD kernels.

    .. math::

        \tau \sim \mathrm{HalfCauchy}(\alpha), \qquad \rho_j \mid \tau \sim \mathrm{HalfCauchy}(\tau), \qquad
        \ell_j = \rho_j^{-1/2}

    A small shared :math:`\tau` makes all lengthscales long. The heavy tails let single features keep a short one. The
    distribution is that of the vector :math:`\ell`: its density is an integral over :math:`\tau`, which is computed
    numerically, to rounding errors in float64. So :math:`\tau` is not a site, and an inference sees one vector of
    positive numbers. Use `kpp.NUTS` or `kpp.Laplace`: for more than two features the density has no maximum, as
    `kpp.MAP` needs, because it grows without bound as all lengthscales tend to 0 together.

    Args:
        num_features: d, the number of features.
        scale: :math:`\alpha`, positive. The default of the paper is for features that are scaled to [0, 1].

    Example:
        >>> from kpp_structures import SAASLengthscales
        >>> kernel = kpp.kernels.RBF(SAASLengthscales(20), variance=1.0)
        >>> SAASLengthscales(20).sample(jax.random.key(0)).shape
        (20,)

    References:
        Eriksson and Jankowiak, High-dimensional Bayesian optimization with sparse axis-aligned subspaces, 2021,
        section 4.1.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {"scale": constraints.positive}
    support = constraints.independent(constraints.positive, 1)
    reparametrized_params: ClassVar[list[str]] = ["scale"]

    def __init__(self, num_features: int, scale: float = 0.1, *, validate_args: bool | None = None) -> None:
        self.scale = positive(scale, "scale")
        super().__init__((), (count(num_features, "num_features"),), validate_args=validate_args)

    @property
    def num_features(self) -> int:
        """The number of features d."""
        return self.event_shape[0]

    def sample(self, key: RngKey, sample_shape: tuple[int, ...] = ()) -> Float[Array, "*sample d"]:
        """Draw lengthscales."""
        shared, own = jax.random.split(key)
        tau = dist.HalfCauchy(self.scale).sample(shared, (*sample_shape, 1))
        return (tau * dist.HalfCauchy(1.0).sample(own, (*sample_shape, *self.event_shape))) ** -0.5

    @validate_sample
    def log_prob(self, value: Float[AnyArray, "*batch d"]) -> Float[Array, "*batch"]:
        r"""Return the log density of lengthscales.

        With :math:`s = \log \tau`, :math:`u_j = \log \rho_j` and :math:`u_0 = \log \alpha` the density of u is
        :math:`\int \prod_{j=0}^d \mathrm{sech}(s - u_j) / \pi \; ds`, for which the trapezoidal rule converges
        exponentially.
        """
        value = jnp.asarray(value)
        centers = jnp.concatenate([jnp.full_like(value[..., :1], jnp.log(self.scale)), -2 * jnp.log(value)], axis=-1)
        reach = 1 + 40 / centers.shape[-1]  # beyond it the integrand is below the machine precision
        ends = jax.lax.stop_gradient((centers.min(axis=-1) - reach, centers.max(axis=-1) + reach))
        distances = jnp.linspace(*ends, _NODES, axis=-1)[..., None] - centers[..., None, :]
        densities = np.log(2 / np.pi) - jnp.logaddexp(distances, -distances)
        integral = jax.scipy.special.logsumexp(densities.sum(axis=-1), axis=-1)
        return integral + jnp.log((ends[1] - ends[0]) / (_NODES - 1)) + jnp.sum(np.log(2) - jnp.log(value), axis=-1)
