"""Reading a predictor and points: the function that an explainer requires, an array, and the names of its columns."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, TypeGuard, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from kpp.data.tables import Schema, is_table, read_points
from kpp.explanations.functions.estimator_functions import EstimatorFunction, is_estimator
from kpp.foundation.validation import as_finite_array, one_of
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.typing import AnyArray

_LOGGER = logging.getLogger("kpp")

#: The kinds of predictor that an explainer can require; `resolve` returns exactly the required kind.
Requirement = Literal["rkhs_function", "probabilities", "callable", "pairs"]

_NEEDS = {
    "rkhs_function": "an RKHS function: a kpp.Fit, a kpp.RKHSFunction, or a fitted scikit-learn kernel method",
    "probabilities": "probabilities: a kpp.Fit of a classifier, or a function from points (p, d) to probabilities",
    "callable": "a function from points (p, d) to predictions (p,), a kpp.Fit or kpp.RKHSFunction, or a fitted "
    "estimator of scikit-learn or XGBoost",
    "pairs": "an RKHS function on pairs of points: a kpp.Fit of a preference model, or a kpp.RKHSFunction",
}


@runtime_checkable
class _Fitted(Protocol):
    """The part of `kpp.Fit` that is used here, so that the fits of other packages can be explained too."""

    schema: Schema | None

    def function(self) -> RKHSFunction: ...

    def predict(self, x: np.ndarray) -> Any: ...


class Resolved(NamedTuple):
    """A predictor and points in the form that an explainer requires.

    Attributes:
        function: An `RKHSFunction`, possibly with draws, or a plain function, as the explainer requires. If an
            `RKHSFunction` is required, it is unfolded. An estimator becomes an `EstimatorFunction`, which returns the
            probabilities of a classifier, whose `output_names` are the classes, or otherwise the predictions.
        x: The points as a float array, (p, d), or (p, 2, d) for pairs.
        schema: The names of the features and the levels of categorical ones; `Explanation.create` takes it.
    """

    function: Any
    x: jax.Array
    schema: Schema


def resolve(predictor: object, x: object, requires: Requirement) -> Resolved:
    """Read a predictor and the points to explain.

    Args:
        predictor: A `kpp.Fit`, a `kpp.RKHSFunction`, a `kpp.GPPosterior`, whose mean is read, or a function; if the
            explainer needs a "callable", also a fitted estimator.
        x: The points, (p, d), or a data frame. It is read by the schema of the fit or of the estimator; if there is no
            schema, the data frame names the features.
        requires: The kind of predictor that the explainer needs, its class attribute ``requires``.

    Raises:
        TypeError: If the predictor is not of the kind that the explainer needs.
        ValueError: If `x` is empty, not finite, of the wrong shape, or lacks columns.
    """
    known = ReadPredictor.read(predictor, requires)
    if requires == "pairs":
        return Resolved(known.function, *_read_pairs(x, known.schema))
    rows, schema = read_rows(x, known.schema)
    check_features(known.function, rows)
    return Resolved(known.function, jnp.asarray(rows, rows.dtype), schema)


class ReadPredictor(NamedTuple):
    """A predictor that has been read, so that many blocks of points need its function and its schema only once.

    Attributes:
        predictor: The predictor that was read; an estimator as an `EstimatorFunction`, if a "callable" is required.
        function: The function that the explainer requires.
        schema: The names of the features and their levels; None if the predictor does not know them.
    """

    predictor: Any
    function: Any
    schema: Schema | None

    @classmethod
    def read(cls, predictor: object, requires: Requirement, schema: Schema | None = None) -> ReadPredictor:
        """Read a predictor as `resolve` does; one that has been read is returned unchanged.

        The schema is by default that of the predictor.
        """
        if isinstance(predictor, ReadPredictor):
            return predictor
        if requires == "callable" and is_estimator(predictor):
            predictor = EstimatorFunction.create(predictor)
        function = read_function(predictor, requires)
        return cls(predictor, function, fitted_schema(predictor) if schema is None else schema)


def is_fit(predictor: object) -> TypeGuard[_Fitted]:
    """Return whether a predictor is a `kpp.Fit`, or another object with a schema, a function and predictions."""
    return isinstance(predictor, _Fitted) and not isinstance(predictor, type)


def fit_of(predictor: object) -> _Fitted | None:
    """Return the `kpp.Fit` that a fitted estimator of kpp holds in its attribute `fit_`; None for other predictors."""
    held = getattr(predictor, "fit_", None)
    return held if is_fit(held) else None


def has_function_law(predictor: object, *, outputs: bool = False) -> bool:
    """Return whether a predictor is a Gaussian process, whose function is uncertain under known hyperparameters, too.

    Args:
        predictor: A `kpp.GPPosterior`; or a `kpp.Fit` whose model defines `posterior_draw`, or another object with
            `function_posterior`.
        outputs: Whether the function may have several outputs.
    """
    if isinstance(predictor, GPPosterior):
        return outputs or predictor.output_covariance is None
    if outputs and getattr(getattr(predictor, "model", None), "has_posterior_of_outputs", False):
        return True
    return hasattr(predictor, "function_posterior") and getattr(predictor, "has_function_posterior", True)


def describe_uncertainty(predictor: object, *, has_law: bool, num_draws: int = 1) -> dict[str, str]:
    """Return the attribute ``uncertainty`` of values of a Gaussian process: what their intervals hold.

    * "full": all that the model does not know, its hyperparameters (if they have priors) and its function given them;
    * "function only": the function at one value of the hyperparameters, for example after `kpp.MAP`, or of a model of
      another library. The first explanation of this kind logs a warning;
    * "hyperparameters only": posterior means, one for each draw of the hyperparameters;
    * "part of the function only": posterior means, one for each draw of values at inducing points, at one value of the
      hyperparameters;
    * "posterior mean only": one posterior mean.

    Returns:
        The attribute; nothing if the predictor is not a Gaussian process.
    """
    if not has_function_law(predictor, outputs=True):
        return {}
    fixed = isinstance(predictor, GPPosterior) and math.prod(predictor.batch_shape) == 1
    fixed = fixed or bool(getattr(predictor, "fixed_sites", ()))
    if has_law:
        if fixed:
            _warn_of_narrow_intervals()
        return {"uncertainty": "function only" if fixed else "full"}
    if num_draws == 1:
        return {"uncertainty": "posterior mean only"}
    return {"uncertainty": "part of the function only" if fixed else "hyperparameters only"}


@functools.cache
def _warn_of_narrow_intervals() -> None:
    """Warn, once in a process, of intervals that may hold less than 85 %."""
    # The row `shapley_wide_map` of docs/reference/measured_intervals.md has the number.
    _LOGGER.warning(
        "the hyperparameters of the explained Gaussian process are fixed at one value, so intervals of its "
        "contributions may be too narrow: after kpp.MAP with 20 rows and wide priors, 90 % intervals held about 84 % "
        "of the true values; fit it with kpp.Laplace() or kpp.NUTS(), which draw the hyperparameters"
    )


def fitted_schema(predictor: object) -> Schema | None:
    """Return the schema of a predictor, as fits and functions of estimators have one; None if it has none."""
    schema = getattr(predictor, "schema", None)
    return schema if isinstance(schema, Schema) else None


def read_rows(x: object, schema: Schema | None, name: str = "x") -> tuple[Float[np.ndarray, "n d"], Schema]:
    """Read points by a schema, or learn their schema.

    Args:
        x: The points, (n, d), or a data frame.
        schema: The columns that the predictor knows. None if it does not know columns: then the names come from the
            data frame, or are x0, x1, ...
        name: The argument's name for messages.

    Raises:
        ValueError: If the points do not fit the schema; or if there is none and a data frame holds text: only the
            predictor's own data determine the codes of the levels.
    """
    if schema is not None:
        return schema.read(x, name), schema
    rows, schema = read_points(x, name)
    if schema.levels:
        raise ValueError(
            f"`{name}` holds text in {sorted(schema.levels)}, and this predictor does not know its codes; "
            "give numbers, a kpp.Fit made from a data frame, or an estimator with a data frame as background"
        )
    return rows, schema


def read_function(predictor: object, requires: Requirement) -> RKHSFunction | Callable[..., Any]:
    """Return the function that an explainer requires; the predictor is as for `resolve`, but an `EstimatorFunction`."""
    one_of(requires, "requires", sorted(_NEEDS))
    if requires == "probabilities":
        if is_fit(predictor):
            return _probabilities(predictor)
        if callable(predictor) and not isinstance(predictor, RKHSFunction):
            return predictor
    else:
        function = predictor.function() if is_fit(predictor) else predictor
        function = function.mean if isinstance(function, GPPosterior) else function
        if isinstance(function, RKHSFunction) and requires != "callable":
            return function.unfold()
        if isinstance(function, RKHSFunction) or (requires == "callable" and callable(function)):
            return function
    raise TypeError(f"the explainer needs {_NEEDS[requires]}; `predictor` is {_describe(predictor)}")


def _probabilities(fit: _Fitted) -> Callable[[Any], jax.Array]:
    """Return the posterior probability of a fitted classifier as a function of points (p, d)."""

    def probability(x: ArrayLike) -> jax.Array:
        predicted = fit.predict(np.asarray(x))
        if "probability" not in predicted:
            raise TypeError(f"the explainer needs {_NEEDS['probabilities']}; `predictor` predicts {list(predicted)}")
        return jnp.asarray(predicted["probability"].mean(["chain", "draw"]).values)

    return probability


def _read_pairs(x: object, schema: Schema | None) -> tuple[jax.Array, Schema]:
    array = as_finite_array(x, "x")
    if array.ndim != 3 or array.shape[1] != 2 or 0 in array.shape:
        raise ValueError(f"`x` must hold pairs of points, shape (p, 2, d), got shape {array.shape}")
    if schema is None:
        schema = Schema(tuple(f"x{j}" for j in range(array.shape[2])))
    if array.shape[2] != schema.num_features:
        raise ValueError(f"`x` must hold points with {schema.num_features} columns (features), got shape {array.shape}")
    return array, schema


def check_features(function: RKHSFunction | Callable[..., Any], x: Float[AnyArray, "n d"]) -> None:
    """Check that points have as many columns as the points of an RKHS function."""
    known = function.num_features if isinstance(function, RKHSFunction) else None
    if known not in (None, x.shape[1]):
        raise ValueError(f"`x` must have {known} columns (features), as the predictor, got shape {x.shape}")


def _describe(predictor: object) -> str:
    kind = type(predictor)
    hint = ""
    if is_estimator(predictor):
        hint = "; convert a fitted scikit-learn estimator with kpp.as_rkhs_function, or hand over its `predict`"
    elif callable(predictor):
        hint = ', a function of unknown form, which explainers such as "kernel-shap" take'
    elif is_table(predictor) or hasattr(predictor, "shape"):
        hint = "; the first argument is the predictor, the points come second"
    return f"a {kind.__module__}.{kind.__qualname__}{hint}"
