"""The effect of a treatment by averaging a fitted Gaussian process over the covariates."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from kpp.causal import CausalDAG, CausalError, is_adjustment_set
from kpp.effects.averages import average_laws
from kpp.effects.effect import CausalEffect
from kpp.effects.overlap import effective_rows, residual_scale
from kpp.inference import Fit
from kpp.tables import Scales, Schema
from kpp.typing import RngKey

__all__ = ["EffectOptions", "effect_of_fit"]

# The largest number of draws of the hyperparameters that are used: each needs a root of n^2 numbers.
_MAX_DRAWS = 250
# The values of a treatment of numbers by default: this many between the quantiles of 5 and 95 percent.
_NUM_VALUES = 20
# Fewer effective rows than this are warned about.
_FEW_ROWS = 10


@dataclasses.dataclass(frozen=True)
class EffectOptions:
    """Options of an effect.

    Args:
        at: The values of the treatment; None for the levels of a category, and 20 values of a number.
        rows: The rows of a subgroup, a mask (n,); None for all.
        num_draws: The least number of draws.
        bootstrap: Whether the law of the covariates is uncertain, by a Bayesian bootstrap.
    """

    at: Sequence[Any] | None = None
    rows: Bool[np.ndarray, " n"] | None = None
    num_draws: int = 1000
    bootstrap: bool = True


def effect_of_fit(
    rng_key: RngKey,
    fit: Fit,
    graph: CausalDAG,
    treatment: str,
    outcome: str,
    options: EffectOptions,
    *,
    scales: Scales | None = None,
    further: tuple[str, ...] = (),
) -> CausalEffect:
    """Average a fitted regression of the outcome on treatment and covariates over the covariates of its training data.

    Args:
        rng_key: A JAX random key.
        fit: The fit, whose columns are the treatment and an adjustment set.
        graph: The graph.
        treatment: The treatment, a column of the fit.
        outcome: The outcome, a node of the graph.
        options: Further options.
        scales: The scales by which the columns of the fit were standardized, or None.
        further: Columns that are not in the graph.
    """
    schema = _check_fit(fit, graph, treatment, outcome, further)
    column = schema.index(treatment)
    rows = np.asarray(fit.data["x"])
    center, width = (0.0, 1.0) if scales is None else (scales.center[column], scales.scale[column])
    values, labels = _values(schema, treatment, rows[:, column] * width + center, options.at)
    mask = _subgroup(options.rows, len(rows))
    kept = _thinned(fit)
    shape = kept.num_chains, kept.num_draws
    sets = -(-options.num_draws // (shape[0] * shape[1]))
    weight_key, draw_key = jax.random.split(rng_key)
    weights = _weights(weight_key, (*shape, sets), mask, options.bootstrap)
    means, covariances = average_laws(
        kept.function_posterior(), jnp.asarray(rows), column, jnp.asarray((values - center) / width), weights
    )
    draws = np.asarray(_draw(draw_key, means, covariances)).reshape(shape[0], -1, len(values))
    parts = [jnp.diagonal(covariances, axis1=-2, axis2=-1).mean((0, 1, 2)), means.var((0, 1, 2))]
    covariates = [name for name in schema.feature_names if name != treatment]
    count = _effective(rows[mask], schema, column, values, center, width)
    _warn_of_few(count, labels)
    dataset = xr.Dataset(
        {
            "effect": (("chain", "draw", "treatment"), draws),
            "variance_parts": (("part", "treatment"), np.stack([np.asarray(part) for part in parts])),
            "effective_rows": ("treatment", count),
        },
        coords={
            "treatment": labels,
            "treatment_code": ("treatment", values),
            "part": ["function", "hyperparameters and covariates"],
        },
        attrs={
            "graph": str(graph),
            "treatment_name": treatment,
            "outcome": outcome,
            "adjustment": covariates,
            "bootstrap": int(options.bootstrap),
            "rows": int(mask.sum()),
        },
    )
    return CausalEffect(dataset, scale=_scale(fit, rows, schema, column, center, width))


def _check_fit(fit: Fit, graph: CausalDAG, treatment: str, outcome: str, further: tuple[str, ...]) -> Schema:
    if not fit.has_function_posterior or "response" in fit.model.predictive_dims():
        raise TypeError(f"`data` must be a fit of a Gaussian-process regression, got one of {type(fit.model).__name__}")
    schema = fit.schema
    if schema is None or treatment not in schema.feature_names:
        names = [] if schema is None else list(schema.feature_names)
        raise ValueError(f"`treatment` must be a column of the fit, got {treatment!r}; its columns are {names}")
    covariates = [name for name in schema.feature_names if name != treatment and name not in further]
    unknown = [name for name in covariates if name not in graph]
    if unknown:
        raise CausalError(f"`graph` must have the columns of the fit as nodes, it lacks {unknown}")
    check = is_adjustment_set(graph, treatment=treatment, outcome=outcome, adjusting=covariates)
    if not check:
        raise CausalError(
            f"the columns {covariates} of the fit are not an adjustment set for the effect of {treatment!r} on "
            f"{outcome!r}: {check}; fit the columns of kpp.causal.minimal_adjustment_sets, or pass the data frame"
        )
    return schema


def _values(
    schema: Schema, treatment: str, known: Float[np.ndarray, " n"], at: Sequence[Any] | None
) -> tuple[Float[np.ndarray, " t"], list[Any]]:
    """Return the codes and the labels of the values of the treatment."""
    levels = list(schema.levels.get(treatment, ()))
    if levels:
        labels = levels if at is None else list(at)
        strange = [label for label in labels if label not in levels]
        if strange:
            raise ValueError(f"`at` must hold levels of {treatment!r}, {levels}, got {strange}")
        return np.array([float(levels.index(label)) for label in labels]), labels
    different = np.unique(known)
    if at is None:
        low, high = np.quantile(known, [0.05, 0.95])
        values = different if len(different) <= 2 else np.linspace(low, high, _NUM_VALUES)
    else:
        values = np.asarray(at, dtype=float)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError(f"`at` must hold finite numbers, shape (t,), got {at!r}")
    return values, values.tolist()


def _thinned(fit: Fit) -> Fit:
    """Return a fit with few enough draws, at even distances in each chain."""
    step = -(-fit.num_chains * fit.num_draws // _MAX_DRAWS)
    return fit if step == 1 else dataclasses.replace(fit, draws={k: v[:, ::step] for k, v in fit.draws.items()})


def _subgroup(rows: Any, num_rows: int) -> Bool[np.ndarray, " n"]:
    mask = np.ones(num_rows, dtype=bool) if rows is None else np.asarray(rows)
    if mask.dtype != bool or mask.shape != (num_rows,) or not mask.any():
        raise ValueError(
            f"`rows` must be booleans of shape ({num_rows},), at least one of them True, got dtype {mask.dtype} and "
            f"shape {mask.shape}"
        )
    return mask


def _weights(rng_key: RngKey, shape: tuple[int, ...], mask: Bool[np.ndarray, " n"], bootstrap: bool) -> jax.Array:
    r"""Return weights of rows that sum to 1: Dirichlet(1, ..., 1) on the rows of the subgroup, or equal ones."""
    numbers = jax.random.exponential(rng_key, (*shape, len(mask))) if bootstrap else jnp.ones((*shape, len(mask)))
    numbers = jnp.where(jnp.asarray(mask), numbers, 0.0)
    return numbers / jnp.sum(numbers, axis=-1, keepdims=True)


@jax.jit
def _draw(rng_key: RngKey, means: jax.Array, covariances: jax.Array) -> jax.Array:
    """Draw one curve from each Gaussian law; rounding errors below 0 count as 0."""
    values, vectors = jnp.linalg.eigh((covariances + jnp.swapaxes(covariances, -1, -2)) / 2)
    scaled = jax.random.normal(rng_key, means.shape, means.dtype) * jnp.sqrt(jnp.maximum(values, 0.0))
    return means + jnp.einsum("...ij,...j->...i", vectors, scaled, precision="highest")


def _effective(
    rows: np.ndarray, schema: Schema, column: int, values: np.ndarray, center: float, width: float
) -> Float[np.ndarray, " t"]:
    name = schema.feature_names[column]
    treatment = rows[:, column] * width + center
    others, columns = _without(rows, schema, column)
    is_number = name not in schema.categories and len(np.unique(treatment)) > 2
    return effective_rows(treatment, others, columns, values, is_number=is_number)


def _without(rows: np.ndarray, schema: Schema, column: int) -> tuple[np.ndarray, Schema | None]:
    names = tuple(name for name in schema.feature_names if name != schema.feature_names[column])
    levels = {name: found for name, found in schema.levels.items() if name in names}
    booleans = tuple(name for name in schema.booleans if name in names)
    return np.delete(rows, column, axis=1), Schema(names, levels, booleans) if names else None


def _warn_of_few(count: np.ndarray, labels: list[Any]) -> None:
    few = [label for label, number in zip(labels, count, strict=True) if number < _FEW_ROWS]
    if few:
        warnings.warn(
            f"the effect at the treatments {few} rests on fewer than {_FEW_ROWS} effective rows, and so on the prior; "
            "see `effective_rows` in the dataset",
            stacklevel=4,
        )


def _scale(
    fit: Fit, rows: np.ndarray, schema: Schema, column: int, center: float, width: float
) -> tuple[float, float, float] | None:
    """Return the mean of the treatment and the residual standard deviations of treatment and outcome."""
    if len(schema.levels.get(schema.feature_names[column], ())) > 2:
        return None
    treatment = rows[:, column] * width + center
    others, columns = _without(rows, schema, column)
    fitted = np.asarray(fit.function()(jnp.asarray(rows))).mean((0, 1))
    outcome_sd = float(np.std(np.asarray(fit.data["y"]) - fitted))
    return float(treatment.mean()), residual_scale(treatment, others, columns), outcome_sd
