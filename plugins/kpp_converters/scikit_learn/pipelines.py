"""What stands around an estimator: a search, the steps of a pipeline, and the transformation of targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

from kpp.conversion import rescale_inputs, rescale_outputs
from kpp.features import Nystrom
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.kernels import Linear
from kpp_converters.rules import sklearn_name
from kpp_converters.scikit_learn.estimators import through_nystroem

_Function = TypeVar("_Function", RKHSFunction, GPPosterior)

_SEARCHES = ("GridSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV", "RandomizedSearchCV")

_ADVICE = (
    "convert the last step alone, as_rkhs_function(pipeline[-1]), and explain it at transformed points, "
    "pipeline[:-1].transform(x)"
)


class Wrapped(NamedTuple):
    """An estimator and what stands around it."""

    estimator: Any
    steps: tuple[Any, ...]  # the transformers of its inputs, in the order in which they are applied
    targets: tuple[Any, ...]  # the transformers of its targets, the outermost first

    def wrap(self, function: _Function) -> _Function:
        """Return the function of the whole model, given that of the estimator."""
        for step in reversed(self.steps):
            function = _through_step(function, step)
        for transformer in reversed(self.targets):
            function = _through_target(function, transformer)
        return function


def unwrap(model: Any) -> Wrapped:
    """Take a fitted model apart into an estimator and what stands around it; a search is its best estimator."""
    from sklearn.utils.validation import check_is_fitted

    steps: tuple[Any, ...] = ()
    targets: tuple[Any, ...] = ()
    while (name := sklearn_name(model)) in ("Pipeline", "TransformedTargetRegressor", *_SEARCHES):
        if name in _SEARCHES:
            check_is_fitted(model, "best_estimator_")
            model = model.best_estimator_
        elif name == "Pipeline":
            steps, model = (*steps, *_flat(model[:-1].named_steps.values())), model[-1]
        else:
            check_is_fitted(model, "regressor_")
            targets, model = (*targets, *_flat([model.transformer_])), model.regressor_
    return Wrapped(model, steps, targets)


def _flat(steps: Iterable[Any]) -> Iterator[Any]:
    """Yield transformers, those of pipelines among them included."""
    for step in steps:
        if sklearn_name(step) == "Pipeline":
            yield from _flat(step.named_steps.values())
        elif step is not None and step != "passthrough":
            yield step


def _through_step(function: Any, step: Any) -> Any:
    """Return the function of x that equals `function` of the transformed x."""
    affine = _center_and_scale(step)
    if affine is not None:
        return rescale_inputs(function, *affine)
    if sklearn_name(step) == "Nystroem" and isinstance(getattr(function, "kernel", None), Linear):
        return through_nystroem(function, step)
    features = getattr(step, "features_", None)
    if isinstance(features, Nystrom) and isinstance(getattr(function, "kernel", None), Linear):
        return features.function(function.points.T @ function.coefficients, function.intercept)
    raise ValueError(f"the step {step!r} of the pipeline can't be absorbed exactly; {_ADVICE}")


def _through_target(function: _Function, transformer: Any) -> _Function:
    """Return the function on the scale of the targets before they were transformed."""
    affine = _center_and_scale(transformer)
    if affine is None:
        raise ValueError(
            f"the transformer of the targets, {transformer!r}, is not linear, so the predictions are not an RKHS "
            "function; convert the regressor alone, model.regressor_, and explain it on the scale of transformed "
            "targets"
        )
    outputs = function.output_shape if isinstance(function, RKHSFunction) else ()
    center, scale = (np.broadcast_to(np.squeeze(part), outputs) for part in affine)
    return rescale_outputs(function, scale, center)


def _center_and_scale(scaler: Any) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]] | None:
    """Return c and s of a scaler of scikit-learn that maps x to (x - c) / s: numbers, or one per feature, (d,).

    None stands for another type than a fitted StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler or
    FunctionTransformer without functions, which changes nothing; and for a scaler that clips.
    """
    name = sklearn_name(scaler)
    if name == "StandardScaler":
        center, scale = scaler.mean_ if scaler.with_mean else None, scaler.scale_
    elif name == "RobustScaler":
        center, scale = scaler.center_, scaler.scale_
    elif name == "MaxAbsScaler":
        center, scale = None, scaler.scale_
    elif name == "MinMaxScaler" and not scaler.clip:
        center, scale = -scaler.min_ / scaler.scale_, 1.0 / scaler.scale_  # it maps x to x * scale_ + min_
    elif name == "FunctionTransformer" and scaler.func is None and scaler.inverse_func is None:
        center, scale = None, None
    else:
        return None
    return np.asarray(0.0 if center is None else center), np.asarray(1.0 if scale is None else scale)
