r"""The units of latent sites, so that no inference depends on the units of the data.

NumPyro's unconstrained coordinates of a site on the real numbers are its values. The mean of targets of the size 1e-6
is then a coordinate of this size, beside logarithms of lengthscales of the size 1, and a search that takes steps of one
size for all finds nothing. Steps are therefore taken in units of the standard deviations of the priors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array
from numpyro.distributions import Distribution, Independent, constraints
from numpyro.distributions.transforms import AffineTransform, IndependentTransform, biject_to
from numpyro.primitives import Messenger

from kpp.foundation.supports import is_real
from kpp.typing import AnyArray


def prior_scale(prior: Distribution, value: AnyArray) -> Array:
    """Return the units of a site's unconstrained coordinates: the standard deviations of a prior over real numbers.

    It is 1 where they are not known, and for all other coordinates, which are logarithms and alike, and have no unit.
    """
    ones = jnp.ones_like(value)
    if not is_real(prior.support):
        return ones
    try:
        scale = jnp.sqrt(prior.variance)
    except NotImplementedError:
        return ones
    return jnp.broadcast_to(jnp.where(jnp.isfinite(scale) & (scale > 0), scale, 1.0), ones.shape).astype(ones.dtype)


class in_units(Messenger):
    """A NumPyro effect handler that gives sites on the real numbers unconstrained coordinates in units."""

    def __init__(self, fn: Any, units: Mapping[str, AnyArray]) -> None:
        self._units = units
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        """Replace the distribution of a site by the same one in units."""
        if msg["type"] == "sample" and not msg["is_observed"] and msg["name"] in self._units:
            msg["fn"] = _InUnits(msg["fn"], self._units[msg["name"]])


class _Multiples(constraints.Constraint):
    """All real numbers, as multiples of units."""

    def __init__(self, scale: AnyArray, event_dim: int) -> None:
        self.scale = scale
        self._event_dim = event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    def __call__(self, x: AnyArray) -> Array:
        return constraints.independent(constraints.real, self._event_dim)(x)

    def feasible_like(self, prototype: AnyArray) -> Array:
        return jnp.zeros_like(prototype)

    def tree_flatten(self) -> tuple[Any, Any]:
        return (self.scale,), (("scale",), {"_event_dim": self._event_dim})


@biject_to.register(_Multiples)
def _to_multiples(constraint: _Multiples) -> IndependentTransform:
    return IndependentTransform(AffineTransform(0.0, constraint.scale), constraint.event_dim)


class _InUnits(Independent):
    """A distribution over real numbers whose unconstrained coordinates are multiples of units."""

    pytree_data_fields = ("scale",)

    def __init__(self, base_dist: Distribution, scale: AnyArray) -> None:
        self.scale = scale
        super().__init__(base_dist, 0)

    @property
    def support(self) -> _Multiples:
        return _Multiples(self.scale, self.event_dim)
