"""What the models of aggregates share: their fields, the checks of these, and the making of data."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.bags import Bags
from kpp.gp import InducingSettings, check_kernel_fits, check_mean_fits, place_inducing, refuse_below
from kpp.kernels import AbstractKernel, resolve_features
from kpp.priors import is_prior
from kpp.tables import Schema
from kpp.typing import Leaf, RngKey
from kpp.validation import as_finite_array, as_targets, is_concrete
from kpp_models.aggregates.aggregate_likelihoods import as_aggregate_targets, check_likelihood
from kpp_models.aggregates.bag_grams import gram_data
from kpp_models.aggregates.data import (
    as_bags,
    bags_of,
    join_bags,
    read_aggregates,
)

__all__ = [
    "check_aggregate_fields",
    "example_bags",
    "inducing_settings",
    "mean_field",
    "numbers_field",
    "prepare_aggregates",
]

Model = TypeVar("Model", bound=Any)
_GRAM_SIZES = {"exact": 2, "sampled": 20, "fourier": 500}


def numbers_field(name: str, **options: Any) -> Any:
    """Return an Equinox field that holds one number, or one a source, or a prior."""
    return eqx.field(converter=functools.partial(_as_numbers, name=name), **options)


def mean_field(**options: Any) -> Any:
    """Return an Equinox field that holds a prior mean: a number, a prior, or a callable module."""
    return eqx.field(converter=_as_mean, **options)


def _as_numbers(value: Leaf, name: str) -> Leaf:
    if is_prior(value):
        return value
    array = as_finite_array(value, name)
    if array.ndim > 1:
        raise ValueError(f"`{name}` must be one number, or one a source, got an array of shape {array.shape}")
    return array


def _as_mean(value: Any) -> Any:
    if is_prior(value) or callable(value):
        return value
    array = as_finite_array(value, "mean")
    if array.ndim > 0:
        raise ValueError(f"`mean` must be one number, a prior, or a callable module, got shape {array.shape}")
    return array


def check_aggregate_fields(model: Any) -> None:
    """Refuse negative variances, an unknown likelihood, and unfit numbers of inducing points and targets.

    Raises:
        ValueError: Naming the field.
    """
    refuse_below(model.noise_variance, "noise_variance", zero_allowed=True)
    refuse_below(model.high_resolution_variance, "high_resolution_variance", zero_allowed=True)
    refuse_below(model.degrees_of_freedom, "degrees_of_freedom", zero_allowed=False)
    check_likelihood(model.likelihood)
    size = model.minibatch_size
    if size is not None and size < 1:
        raise ValueError(f"`minibatch` must be at least 1, got {size}")
    if size is not None and (model.likelihood == "gaussian" or model.inducing is None):
        raise ValueError("`minibatch` is for inducing points and another likelihood than the Gaussian; leave it out")


def inducing_settings(model: Any) -> InducingSettings | None:
    """Return how a model's fields say that the field is summarised by inducing points, or None."""
    if model.num_inducing is None and model.inducing_points is None:
        return None
    size = _GRAM_SIZES.get(model.bag_gram, 2) if model.gram_size is None else model.gram_size
    return InducingSettings(
        model.inducing_points, model.num_inducing, model.learn_inducing, model.bag_gram, size, model.seed
    )


def prepare_aggregates(
    model: Model, x: Any, y: Any, *, covariates: Any = None, exposure: Any = None, matched: bool = False
) -> tuple[Model, dict[str, Any], Schema]:
    """Read the data of a model of aggregates and tie its kernels to the columns.

    Args:
        model: The model.
        x: Bags, or a list of them, or points.
        y: Targets, or a list of them.
        covariates: The covariates of the targets, or None.
        exposure: What scales each target, or None; a list where there are several sources.
        matched: Whether the model takes one target a bag only.

    Returns:
        The model with names resolved and inducing points in place, the data, and the schema of the points.

    Raises:
        ValueError: If the data are unfit.
    """
    data, schema = read_aggregates(x, y, covariates, matched=matched, as_targets=as_targets)
    bags = bags_of(data)
    check_mean_fits(model.mean, bags.points)
    _check_noise_of_sources(model.noise_variance, int(np.max(data["source"])) + 1)
    if isinstance(exposure, (list, tuple)) and any(np.ndim(part) > 0 for part in exposure):
        exposure = np.concatenate([np.asarray(part) for part in exposure])
    data["y"], data["exposure"] = as_aggregate_targets(model.likelihood, data["y"], exposure)
    changes: dict[str, Any] = {"kernel": _fitted(model.kernel, schema.feature_names, bags.points, "kernel", "x")}
    if hasattr(model, "bag_kernel"):
        named = join_bags(as_bags(x))[0]
        changes["bag_kernel"] = _fit_bag_kernels(model.bag_kernel, named, data)
        changes["covariate_names"] = named.covariate_names
    data["coincidence"] = None if _is_zero(model.high_resolution_variance) else bags.coincidence()
    data["inducing"] = None
    if model.inducing is not None:
        changes |= {"inducing_points": place_inducing(model.inducing, bags), "num_inducing": None}
        data["inducing"] = gram_data(model.inducing, bags)
    y = data.pop("y")
    return dataclasses.replace(model, **changes), {**data, "y": y}, schema


def _check_noise_of_sources(noise_variance: Leaf, count: int) -> None:
    shape = noise_variance.shape() if is_prior(noise_variance) else jnp.shape(noise_variance)
    if shape not in ((), (count,)):
        raise ValueError(
            f"`noise_variance` must be one number, or one for each of the {count} sources, got shape {shape}"
        )


def _fit_bag_kernels(kernels: Any, bags: Bags, data: dict[str, Any]) -> Any:
    several = isinstance(kernels, (tuple, list))
    count = int(np.max(data["source"])) + 1
    if several and len(kernels) != count:
        raise ValueError(f"`bag_kernel` must be one kernel, or one for each of the {count} sources, got {len(kernels)}")
    fitted = tuple(
        _fitted(kernel, bags.covariate_names, data["covariates"], "bag_kernel", "covariates")
        for kernel in (kernels if several else (kernels,))
    )
    return fitted if several else fitted[0]


def _fitted(kernel: AbstractKernel, names: tuple[str, ...], points: Array, name: str, what: str) -> AbstractKernel:
    """Return a kernel with names of features resolved, once it is known to fit the points."""
    resolved = resolve_features(kernel, names) if names else kernel
    check_kernel_fits(resolved, points, name, what)
    return resolved


def _is_zero(value: Leaf) -> bool:
    return not is_prior(value) and is_concrete(value) and float(value) == 0.0


def example_bags(rng_key: RngKey) -> tuple[Bags, Float[Array, " 5"]]:
    """Return 5 bags of 1 to 4 points with a covariate each, and the bags' noisy means of a function."""
    first, second = jax.random.split(rng_key)
    x = jax.random.normal(first, (12, 2))
    bags = Bags.create(x, np.repeat(np.arange(5), [1, 4, 2, 3, 2]), np.linspace(-1.0, 1.0, 5)[:, None])
    targets = bags.means(jnp.sin(bags.points[:, 0]) + 0.5 * bags.points[:, 1])
    return bags, targets + 0.1 * jax.random.normal(second, (5,))
