"""Prior mean functions: modules whose numbers may be priors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.foundation.validation import as_finite_array
from kpp.functions import RKHSFunction
from kpp.gp.fields import as_scalar
from kpp.kernels import Linear
from kpp.priors import is_prior, leaf_shape, prior_sites, substitute
from kpp.storage.serialization import data_class
from kpp.typing import AnyArray, Leaf


def mean_field(**options: Any) -> Any:
    """Return an Equinox field that holds a prior mean: one number, a prior for it, or a function of points."""
    return eqx.field(converter=_as_mean, **options)


def _as_mean(value: Any) -> Any:
    return value if callable(value) and not is_prior(value) else as_scalar(value, "mean")


def _as_weights(value: Leaf) -> Leaf:
    shape = leaf_shape(value)
    if len(shape) != 1:
        raise ValueError(f"`weights` must hold one number per feature, shape (d,), got shape {shape}")
    return value if is_prior(value) else as_finite_array(value, "weights")


@data_class
class LinearMean(eqx.Module):
    r"""A linear prior mean.

    .. math:: m(x) = x^\top w + b

    Any Equinox module with such a `__call__` can be a prior mean. The sites of its priors are named after its fields,
    here ``mean.weights`` and ``mean.bias``. Shapley values of product kernels stay exact by quadrature if the module
    has a method ``as_rkhs_function``, which returns it as a `kpp.RKHSFunction`, as it does here.

    Args:
        weights: w, (d,), in units of f per unit of each feature; numbers or a prior, such as ``dist.Normal(0.0,
            1.0).expand([d])``.
        bias: b, in units of f; a number or a prior.

    Raises:
        ValueError: If the weights do not have shape (d,), or a number is not finite; and when the mean is evaluated, if
            the points do not have d features.
    """

    weights: Leaf = eqx.field(converter=_as_weights)
    bias: Leaf = eqx.field(converter=lambda value: value if is_prior(value) else as_finite_array(value, "bias"))

    def __call__(self, x: Float[AnyArray, "n d"]) -> Float[Array, " n"]:
        """Return the mean at n points, (n,)."""
        for name, found, needed in (("weights", self.weights, x.shape[1:]), ("bias", self.bias, ())):
            if jnp.shape(found) != needed:
                raise ValueError(
                    f"`{name}` of a LinearMean must have shape {needed} for points of shape {x.shape}, got shape "
                    f"{jnp.shape(found)}: one weight per feature, and one bias"
                )
        return jnp.asarray(x) @ self.weights + self.bias

    def as_rkhs_function(self) -> RKHSFunction:
        """Return the mean as a function of the RKHS of a linear kernel, with which it is explained exactly."""
        return RKHSFunction(Linear(jnp.ones_like(self.weights)), self.weights[None], jnp.ones(1), self.bias)


def check_mean_fits(mean: Leaf | Callable[[Array], Array], x: Float[Array, "n d"]) -> None:
    """Check that a prior mean function maps points (n, d) to one number per point, (n,).

    Raises:
        ValueError: If it does not; the message holds the shape received or the error of the module.
    """
    if is_prior(mean) or not callable(mean):
        return

    def evaluate(x: Array) -> Array:
        ones = {site: jnp.ones(prior.shape(), x.dtype) for site, prior in prior_sites("mean", mean).items()}
        return substitute("mean", mean, ones)(x)

    try:
        shape = jax.eval_shape(evaluate, x).shape
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(f"`mean` cannot be evaluated on `x` of shape {x.shape}: {error}") from error
    if shape != x.shape[:1]:
        raise ValueError(f"`mean` must return one number per point, shape {x.shape[:1]}, got shape {shape}")
