"""Fields of the models of aggregates, checks that fields fit the data, and example data."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.data.bags import Bags
from kpp.foundation.validation import as_finite_array, is_concrete
from kpp.gp import scalar_field
from kpp.gp.toolkit import check_kernel_fits, mean_field
from kpp.kernels import AbstractKernel, resolve_features
from kpp.kernels.toolkit import point_rows
from kpp.priors import is_prior, leaf_shape
from kpp.typing import Leaf, RngKey
from kpp_models.aggregates.aggregate_likelihoods import Likelihood


def as_noise_variances(value: Leaf) -> Leaf:
    """Convert the field `noise_variance`: one number, one number per source, or a prior."""
    if is_prior(value):
        return value
    array = as_finite_array(value, "noise_variance")
    if array.ndim > 1:
        raise ValueError(f"`noise_variance` must be one number, or one per source, got an array of shape {array.shape}")
    return array


class AbstractFieldOfBags(eqx.Module):
    """Fields of models of one target per bag, which `kpp_models.BaggGP` documents."""

    kernel: AbstractKernel
    noise_variance: Leaf = scalar_field("noise_variance")
    mean: Any = mean_field(default=0.0)
    high_resolution_variance: Leaf = scalar_field("high_resolution_variance", default=0.0)
    degrees_of_freedom: Leaf = scalar_field("degrees_of_freedom", default=4.0)
    likelihood: Likelihood = eqx.field(static=True, default="gaussian", kw_only=True)
    inducing_points: Leaf | None = eqx.field(converter=point_rows("inducing_points"), default=None, kw_only=True)
    num_inducing: int | None = eqx.field(static=True, default=None, kw_only=True)
    learn_inducing: bool = eqx.field(static=True, default=False, kw_only=True)
    minibatch: int | None = eqx.field(static=True, default=None, kw_only=True)
    seed: int = eqx.field(static=True, default=0, kw_only=True)


def check_noise_of_sources(noise_variance: Leaf, count: int) -> None:
    """Raise ValueError unless there is one noise variance, or one per source."""
    shape = leaf_shape(noise_variance)
    if shape not in ((), (count,)):
        raise ValueError(
            f"`noise_variance` must be one number, or one for each of the {count} sources, got shape {shape}"
        )


def fitted_kernel(
    kernel: AbstractKernel, names: tuple[str, ...], points: Array, name: str, what: str
) -> AbstractKernel:
    """Return a kernel with names of features resolved; raise ValueError if it does not fit the points."""
    resolved = resolve_features(kernel, names) if names else kernel
    check_kernel_fits(resolved, points, name, what)
    return resolved


def is_zero(value: Leaf) -> bool:
    """Return whether a field is known to be the number 0."""
    return not is_prior(value) and is_concrete(value) and float(value) == 0.0


def example_bags(rng_key: RngKey) -> tuple[Bags, Float[Array, " 5"]]:
    """Return 5 bags of 1 to 4 points, each with a covariate, and noisy means of a function over the bags."""
    first, second = jax.random.split(rng_key)
    x = jax.random.normal(first, (12, 2))
    bags = Bags.create(x, np.repeat(np.arange(5), [1, 4, 2, 3, 2]), np.linspace(-1.0, 1.0, 5)[:, None])
    targets = bags.means(jnp.sin(bags.points[:, 0]) + 0.5 * bags.points[:, 1])
    return bags, targets + 0.1 * jax.random.normal(second, (5,))
