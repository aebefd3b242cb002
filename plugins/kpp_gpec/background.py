"""The data to which a GPEC is fitted: reading the model, explaining the background, standardizing.

Explanations from any source are observations of a process: arrays of values with the variance of their noise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

import kpp
from kpp import GPPosterior, registry
from kpp.data.tables import as_table, is_table
from kpp.explanations import AbstractExplainer, EstimatorFunction, Explanation, Inputs
from kpp.explanations.toolkit import fitted_schema
from kpp.foundation.validation import as_points, at_least, check_rng_key, check_same_rows, count
from kpp.typing import RngKey
from kpp_gpec.boundary.margins import standard_deviations

# The largest number of background points that an explainer given by name uses as its own background.
_REFERENCES = 100
#: The possible sources of the variance of the noise, which may also be a number.
NOISES = ("explainer", "repeats")

_SAMPLE_DIMS = ("chain", "draw")


class Observations(NamedTuple):
    """Explanations with noise."""

    values: Float[np.ndarray, "n d outputs"]
    noise: Float[np.ndarray, "n d outputs"]  # the variances of the errors
    source: str  # of the variances, in words


class Prepared(NamedTuple):
    """A model and the known explanations of its background."""

    known: dict[str, Any]  # the fields of the `FittedGPEC` but its outputs and its record
    function: Callable[[Any], Any]  # from points to predictions (n,) or (n, outputs), averaged over draws
    num_outputs: int  # of the model, 0 if its predictions have no axis of outputs
    explainer: str  # the name of the explainer of the background
    seen: Observations  # the explanations of the chosen outputs, with their noise

    @property
    def x(self) -> Float[np.ndarray, "N d"]:
        """The background."""
        return self.known["x"]

    def standardized(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Return points in standard units."""
        return (x - self.known["location"]) / self.known["scale"]


def freeze_background(value: object) -> Any:
    """Convert the field `background`: points, or a data frame that is read once the predictor's columns are known."""
    value = as_table(value, "background")
    return value if is_table(value) else as_points(value, "background")


def check_explainer(explainer: object, options: tuple[tuple[str, Any], ...]) -> None:
    """Raise TypeError unless the value is a name or an explainer, which must not be given with options."""
    if isinstance(explainer, str):
        return
    if not isinstance(explainer, AbstractExplainer):
        raise TypeError(f"`base_explainer` must be a registered name or an explainer, got {explainer!r}")
    if options:
        names = [name for name, _ in options]
        raise TypeError(f"`base_explainer` is ready-made, so `explainer_options` {names} belong to its constructor")


def freeze_options(options: Any) -> tuple[tuple[str, Any], ...]:
    """Return options as pairs, which a static field can hold; None gives an empty tuple."""
    pairs = () if options is None else options.items() if hasattr(options, "items") else options
    return tuple((str(name), tuple(value) if isinstance(value, list) else value) for name, value in pairs)


def prepare(gpec: Any, inputs: Inputs, explanation: Explanation | None, rng_key: RngKey | None) -> Prepared:
    """Explain the background, unless its explanation is given, and collect all data for the processes.

    Of `inputs` the model and the background are used. The key is for explainers that sample.
    """
    inputs = dataclasses.replace(inputs, x=jnp.asarray(inputs.background, inputs.x.dtype))
    x, axis = inputs.rows, inputs.row_axis
    num_outputs = inputs.predictions.shape[-1] if inputs.predictions.ndim == axis + 2 else 0
    if explanation is None:
        explanations = [_explain(gpec, inputs, key) for key in repeat_keys(gpec.noise, gpec.num_repeats, rng_key)]
    elif gpec.noise == "repeats":
        raise ValueError("`noise` 'repeats' explains anew, so no `explanation` can be given")
    else:
        check_same_rows(len(x), len(explanation), "background", "explanation")
        explanations = [explanation]
    position = _position(explanations[0], gpec.output)
    chosen = explanations if position is None else [one.isel(output=position) for one in explanations]
    bases = [one.base_values.mean([dim for dim in one.base_values.dims if dim != "output"]).values for one in chosen]
    known = dict(
        name="naive-gp" if gpec.boundary is None else "gpec",
        x=x,
        location=x.mean(axis=0) if gpec.standardize else np.zeros(x.shape[1]),
        scale=standard_deviations(x) if gpec.standardize else np.ones(x.shape[1]),
        base_values=np.atleast_1d(np.mean(bases, axis=0)),
        schema=inputs.schema,
        feature_names=chosen[0].feature_names,
        groups=chosen[0].attrs.get("groups", {}),
        output_names=chosen[0].output_names,
        output_positions=_positions(explanations[0], position, num_outputs),
        predictor=inputs.predictor,
    )
    function = (lambda rows: jnp.mean(jnp.asarray(inputs.function(rows)), axis=(0, 1))) if axis else inputs.function
    seen = observe(chosen, gpec.noise, gpec.min_noise_variance)
    return Prepared(known, function, num_outputs, chosen[0].attrs.get("explainer", "unknown"), seen)


def _explain(gpec: Any, inputs: Inputs, rng_key: RngKey | None) -> Explanation:
    """Explain the background with the explainer, with columns named by the schema."""
    explainer, x = gpec.base_explainer, inputs.rows
    cls: Any = registry.get("explainers", explainer) if isinstance(explainer, str) else type(explainer)
    options = dict(gpec.explainer_options)
    if isinstance(explainer, str):
        fields = {field.name for field in dataclasses.fields(cls)}
        if "value_function" in fields:
            options.setdefault("value_function", "interventional")
        if fields & {"background", "value_function"}:
            options.setdefault("background", x[:: -(-len(x) // _REFERENCES)])
    predictor = inputs.predictor
    if cls.requires == "callable":
        predictor = predictor.mean if isinstance(predictor, GPPosterior) else predictor
    elif isinstance(predictor, EstimatorFunction):
        predictor = predictor.estimator
    rows = x if fitted_schema(predictor) is not None else pd.DataFrame(x, columns=list(inputs.schema.feature_names))
    return kpp.explain(predictor, rows, explainer=explainer, rng_key=rng_key, **options)


def _position(explanation: Explanation, output: int | str | None) -> int | None:
    """Return the position of one output, given that or its name; None for all of them."""
    if output is None:
        return None
    names = explanation.output_names
    if names is None:
        raise ValueError(f"`output` {output!r} is asked for, but the explanation has one output only")
    position = names.index(output) if output in names else output
    if not isinstance(position, (int, np.integer)) or not 0 <= position < len(names):
        raise ValueError(f"`output` must be a position or one of {list(names)}, got {output!r}")
    return int(position)


def _positions(explanation: Explanation, position: int | None, num_outputs: int) -> tuple[int, ...]:
    """Return the positions of the explained outputs of the model."""
    found = 1 if explanation.output_names is None else len(explanation.output_names)
    if found != max(num_outputs, 1):
        raise ValueError(f"the model has {max(num_outputs, 1)} outputs, but its explanation {found}")
    return tuple(range(found)) if position is None else (position,)


def check_noise(noise: str | float, num_repeats: int, least: float) -> None:
    """Raise ValueError for invalid settings of the noise."""
    if isinstance(noise, str) and noise not in NOISES:
        raise ValueError(f"`noise` must be a number or one of {NOISES}, got {noise!r}")
    if not isinstance(noise, str):
        at_least(noise, "noise", 0, infinity_allowed=False)
    count(num_repeats, "num_repeats", 2 if noise == "repeats" else 1)
    at_least(least, "min_noise_variance", 0, infinity_allowed=False)


def repeat_keys(noise: str | float, num_repeats: int, rng_key: RngKey | None) -> list[Any]:
    """Return the random keys for explanations: one per repeat, or a single one, which may be None."""
    if noise != "repeats":
        return [rng_key]
    return list(jax.random.split(check_rng_key(rng_key), num_repeats))


def observe(explanations: Sequence[Explanation], noise: str | float, least: float = 0.0) -> Observations:
    r"""Compute values and noise, at least `least`, from one explanation or repeated explanations of the same points.

    Draws of a posterior are averaged, and by the law of total variance their variance is part of the noise:

    .. math:: U = \mathrm{Var}_s\, \mathrm E[\phi \mid s] + \mathrm E_s\, \mathrm{Var}[\phi \mid s]

    Of repeated explanations the mean and the variance of this mean are used. With the noise "explainer" it is the
    explainer's variance, otherwise its squared standard errors, otherwise 0; with "repeats" the variance between the
    explanations; a number is the variance itself.
    """
    if noise == "repeats":
        repeats = np.stack([_average(explanation.values) for explanation in explanations])
        values, variance = repeats.mean(axis=0), repeats.var(axis=0, ddof=1) / len(repeats)  # of the mean
        source = f"{len(repeats)} repeats"
    else:
        values = _average(explanations[0].values)
        variance, source = _own_variance(explanations[0])
        if not isinstance(noise, str):
            variance, source = np.full(values.shape, float(noise)), f"given as {float(noise):g}"
    return Observations(values, np.maximum(variance, least), source)


def _own_variance(explanation: Explanation) -> tuple[np.ndarray, str]:
    """Return the variance that an explanation itself holds, and its name."""
    words, variance = [], np.zeros(_average(explanation.values).shape)
    if explanation.has_draws:
        words.append("draws")
        variance = variance + _arranged(explanation.values.var(_SAMPLE_DIMS))
    squares = None if explanation.standard_errors is None else explanation.standard_errors**2
    for name, within in (("variance", explanation.variance), ("standard errors", squares)):
        if within is not None:
            words.append(name)
            return variance + _average(within), " and ".join(words)
    return variance, " and ".join(words) or "none"


def _average(array: xr.DataArray) -> np.ndarray:
    """Return the mean over draws, if there are any, as (n, d, outputs)."""
    return _arranged(array.mean([dim for dim in _SAMPLE_DIMS if dim in array.dims]))


def _arranged(array: xr.DataArray) -> np.ndarray:
    values = array.transpose("instance", "feature", ...).values.astype(float)
    return values if values.ndim == 3 else values[:, :, None]
