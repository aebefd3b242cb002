"""`kpp.explain`: from names and options to an explainer, and from a predictor and points to an explanation."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from kpp import registry
from kpp.conversion import as_rkhs_function
from kpp.explanations import (
    AbstractExplainer,
    EstimatorFunction,
    Explanation,
    fitted_schema,
    is_estimator,
    schema_of,
)
from kpp.functions import RKHSFunction
from kpp.games import AbstractValueFunction
from kpp.tables import Schema, is_table
from kpp.typing import RngKey
from kpp.validation import as_points, check_rng_key

__all__ = ["explain"]


def explain(
    predictor: Any,
    x: Any,
    *,
    explainer: str | AbstractExplainer = "rkhs-shap",
    value_function: str | AbstractValueFunction | None = None,
    rng_key: RngKey | None = None,
    **options: Any,
) -> Explanation:
    """Explain the predictions at some points.

    Args:
        predictor: A `kpp.Fit` (its draws make the explanation a posterior), a `kpp.RKHSFunction`, a fitted scikit-learn
            estimator, or a function from points (p, d) to predictions. Of an estimator explainers take what they need:
            its RKHS function (see `kpp.as_rkhs_function`), or the probabilities of a classifier, else the predictions.
        x: The points to explain, (p, d), or a data frame.
        explainer: The registered name of an explainer, or one ready-made.
        value_function: The registered name of a value function, or one ready-made; for explainers that value
            coalitions.
        rng_key: A JAX random key, for explainers that sample.
        **options: Fields of the explainer and of the value function; an option that both have goes to the explainer.
            ``background``, reference points (m, d), may be a data frame; it then tells the levels of columns of text.

    Returns:
        The explanation.

    Raises:
        TypeError: If an option is unknown or missing, or the predictor is not what the explainer needs.
        ValueError: If a name is not registered, or numbers are not finite or of the wrong shape.
    """
    if rng_key is not None:
        check_rng_key(rng_key)
    predictor = _read_estimator(predictor, explainer, options.get("background"))
    schema = _schema(predictor, x)
    if "background" in options:
        options["background"] = _read_background(options["background"], schema)
    built = _build(explainer, value_function, options)
    return built.explain(_convert(predictor, built), _label(x, predictor), rng_key=rng_key)


def _build(explainer: Any, value_function: Any, options: dict[str, Any]) -> AbstractExplainer:
    """Return the explainer that names and options describe."""
    if isinstance(explainer, AbstractExplainer):
        given = [*options, *(["value_function"] if value_function is not None else [])]
        if given:
            raise TypeError(f"`explainer` is ready-made, so its options {given} belong to its constructor")
        return explainer
    cls = _class_of(explainer)
    fields = _fields(cls)
    own = {name: value for name, value in options.items() if name in fields}
    rest = {name: value for name, value in options.items() if name not in fields}
    if "value_function" not in fields:
        if value_function is not None:
            raise TypeError(f"explainer {explainer!r} takes no `value_function`; its options are {sorted(fields)}")
        _refuse_unknown(rest, {f"explainer {explainer!r}": fields})
    else:
        built = _build_value_function(value_function, rest, explainer, fields)
        own |= {} if built is None else {"value_function": built}
    return _construct(cls, own, f"explainer {explainer!r}")


def _class_of(explainer: Any) -> Any:
    """Return the class of an explainer, or the one that a name is registered for."""
    if isinstance(explainer, AbstractExplainer):
        return type(explainer)
    if not isinstance(explainer, str):
        raise TypeError(f"`explainer` must be a registered name or an explainer, got {explainer!r}")
    return registry.get("explainers", explainer)


def _build_value_function(
    value_function: Any, options: dict[str, Any], explainer: str, explainer_fields: dict[str, bool]
) -> AbstractValueFunction | None:
    """Return the value function, or None where the explainer has a default of its own."""
    known = {f"explainer {explainer!r}": {name: None for name in explainer_fields if name != "value_function"}}
    if value_function is None:
        _refuse_unknown(options, known)
        if explainer_fields["value_function"]:
            names = sorted(registry.value_functions())
            raise TypeError(f"explainer {explainer!r} needs a `value_function`: one of {names}")
        return None
    if isinstance(value_function, AbstractValueFunction):
        _refuse_unknown(options, known)
        return value_function
    if not isinstance(value_function, str):
        raise TypeError(f"`value_function` must be a registered name or a value function, got {value_function!r}")
    cls = registry.get("value_functions", value_function)
    fields = _fields(cls)
    _refuse_unknown(options, {**known, f"value function {value_function!r}": fields})
    return _construct(cls, options, f"value function {value_function!r}")


def _fields(cls: Any) -> dict[str, bool]:
    """Return the constructor's options: field -> whether it must be given."""
    missing = dataclasses.MISSING
    return {
        field.name: field.default is missing and field.default_factory is missing
        for field in dataclasses.fields(cls)
        if field.init
    }


def _refuse_unknown(options: Any, known: dict[str, Any]) -> None:
    unknown = sorted(set(options).difference(*known.values()))
    if unknown:
        listed = "; ".join(f"{owner} takes {sorted(fields)}" for owner, fields in known.items())
        raise TypeError(f"unknown options {unknown}: {listed}")


def _construct(cls: Any, options: dict[str, Any], what: str) -> Any:
    missing = [f"`{name}`" for name, required in _fields(cls).items() if required and name not in options]
    if missing:
        raise TypeError(f"{what} needs {', '.join(missing)}")
    return cls(**options)


def _schema(predictor: Any, x: Any) -> Schema | None:
    """Return the schema of a fit or of an estimator fitted on a data frame, or else that of a data frame `x`."""
    schema = fitted_schema(predictor)
    if schema is not None:
        return schema
    names = getattr(predictor, "feature_names_in_", None)
    if names is not None:
        return Schema(tuple(str(name) for name in names))
    return schema_of(x) if is_table(x) else None


def _read_background(background: Any, schema: Schema | None) -> np.ndarray:
    if schema is not None:
        return schema.read(background, "background")
    if is_table(background):
        return schema_of(background, "background").read(background, "background")
    return np.asarray(as_points(background, "background"))


def _read_estimator(predictor: Any, explainer: Any, background: Any) -> Any:
    """Return an estimator as a function that reads tables as the background's, if that is what the explainer needs."""
    if _class_of(explainer).requires != "callable" or not is_estimator(predictor):
        return predictor
    return EstimatorFunction.create(predictor, background if is_table(background) else None)


def _convert(predictor: Any, explainer: AbstractExplainer) -> Any:
    """Turn a scikit-learn estimator into what the explainer requires; leave everything else to the explainer."""
    if not is_estimator(predictor) or isinstance(predictor, RKHSFunction):
        return predictor
    if explainer.requires == "rkhs_function":
        return as_rkhs_function(predictor)
    probabilities = explainer.requires == "probabilities" and hasattr(predictor, "predict_proba")
    return predictor.predict_proba if probabilities else predictor


def _label(x: Any, predictor: Any) -> Any:
    """Return the points as the columns that an estimator was fitted on, so that their names reach the explanation."""
    names = getattr(predictor, "feature_names_in_", None)
    if names is None:
        return x
    import pandas as pd

    schema = Schema(tuple(str(name) for name in names))
    return pd.DataFrame(schema.read(x), columns=list(schema.feature_names))
