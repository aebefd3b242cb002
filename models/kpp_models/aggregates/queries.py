r"""The posterior of the aggregates themselves, at any covariates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from kpp.foundation.validation import as_points
from kpp.inference import Data, Fit
from kpp.inference.toolkit import Sample
from kpp.typing import Numbers
from kpp_models.aggregates.aggregate_likelihoods import aggregate_likelihood
from kpp_models.aggregates.data import num_sources, read_places
from kpp_models.aggregates.model import AbstractAggregateModel
from kpp_models.aggregates.operators.conditional_mean import Places
from kpp_models.aggregates.preparation import is_zero

if TYPE_CHECKING:
    import xarray as xr


def aggregate_posterior(
    fit: Fit, covariates: Numbers, *, x: Numbers | None = None, source: int = 0, covariance: bool = False
) -> xr.Dataset:
    r"""Return the posterior of :math:`g(y) = E[f(X) \mid Y = y]` at p covariates, for every draw.

    .. math::

        E[g(y) \mid z] = \nu(y) + A_y^\top K A (Q + \sigma^2 I)^{-1} (z - \nu)

    Args:
        fit: A fit of `kpp_models.CMP`.
        covariates: The covariates y, (p, dy), or a data frame with the columns of the bags' covariates.
        x: Points of the field, (r, d) or a data frame, to get its covariances with g; or None.
        source: The number of the source of aggregates, if there are several.
        covariance: Whether to return the whole covariance of g.

    Returns:
        ``mean`` and ``latent_variance`` with dims (chain, draw, aggregate), for likelihoods other than the Gaussian
        also ``response_mean``, the expected target at an exposure of 1: a rate or a probability; ``latent_covariance``
        (..., aggregate, aggregate_other) and ``field_covariance``, Cov(f(x), g(y)), (..., instance, aggregate), if
        requested. The attribute ``operator`` says whether the estimated operator counts as known, as it does unless the
        model has an `operator_variance`.

    Raises:
        TypeError: If the fit is not of a model whose aggregates have covariates.
        ValueError: If the covariates or points are invalid.

    References:
        Chau, Bouabid, Sejdinovic, Deconditional downscaling with Gaussian processes, 2021, propositions 3.2 and 3.5.
    """
    import xarray as xr

    if not isinstance(fit.model, AbstractAggregateModel):
        raise TypeError(
            f"`fit` must be of a model of aggregates such as kpp_models.CMP, got {type(fit.model).__name__}"
        )
    places = _read(fit, covariates, source)
    points = None if x is None else as_points(fit.schema.read(x) if fit.schema is not None else x)

    def moments(
        model: AbstractAggregateModel, sample: Sample, data: Data, places: Places, points: Array | None
    ) -> dict[str, Array]:
        found = model.aggregate_moments(sample, data, places, points)
        found["latent_variance"] = jnp.maximum(jnp.diagonal(found["latent_covariance"]), 0.0)
        if model.likelihood != "gaussian":
            law = aggregate_likelihood(model.likelihood, jnp.ones_like(found["mean"]))
            found["response_mean"] = law.response_mean(found["mean"], found["latent_variance"])
        return found if covariance else {name: found[name] for name in found if name != "latent_covariance"}

    dims = {
        "mean": ("aggregate",),
        "latent_variance": ("aggregate",),
        "response_mean": ("aggregate",),
        "latent_covariance": ("aggregate", "aggregate_other"),
        "field_covariance": ("instance", "aggregate"),
    }
    values = fit.map_draws(moments, places, points)
    variables = {name: (("chain", "draw", *dims[name]), np.asarray(value)) for name, value in values.items()}
    known = is_zero(getattr(fit.model, "operator_variance", 0.0))
    operator = "counts as known: operator_variance is 0" if known else "uncertain"
    found = xr.Dataset(variables, attrs={"created_by": "kpp", "operator": operator})
    return found.assign_coords({dim: np.arange(size) for dim, size in found.sizes.items()})


def _read(fit: Fit, covariates: Numbers, source: int) -> Places:
    known, count = fit.data["covariates"], num_sources(fit.data)
    if known is None:
        raise TypeError(f"the aggregates of {type(fit.model).__name__} have no covariates; kpp_models.CMP's have")
    if not 0 <= source < count:
        raise ValueError(f"`source` must be between 0 and {count - 1}, got {source}")
    rows = read_places(getattr(fit.model, "covariate_names", ()), known.shape[1], covariates)
    return Places(rows, jnp.full(rows.shape[0], source))
