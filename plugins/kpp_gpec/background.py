"""The data to which a GPEC is fitted: reading the model, explaining the background, standardizing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float

import kpp
from kpp import GPPosterior, registry
from kpp.data.tables import as_table, is_table
from kpp.explanations import AbstractExplainer, EstimatorFunction, Explanation, Inputs
from kpp.explanations.toolkit import fitted_schema
from kpp.foundation.validation import as_points, check_same_rows
from kpp.typing import RngKey
from kpp_gpec.boundary.margins import standard_deviations
from kpp_gpec.noisy_explanations import Observations, observe, repeat_keys

# The largest number of background points that an explainer given by name uses as its own background.
_REFERENCES = 100


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
    count = 1 if explanation.output_names is None else len(explanation.output_names)
    if count != max(num_outputs, 1):
        raise ValueError(f"the model has {max(num_outputs, 1)} outputs, but its explanation {count}")
    return tuple(range(count)) if position is None else (position,)
