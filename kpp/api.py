"""`kpp.explain`: from names and options to an explainer, and from a predictor and points to an explanation."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from kpp import registry
from kpp.conversion.toolkit import as_explainable, is_foreign
from kpp.data.tables import Schema, as_table, is_table
from kpp.explanations import AbstractExplainer, AbstractPointsExplainer, EstimatorFunction, Explanation, Inputs
from kpp.explanations.named_functions import NamedFunction
from kpp.explanations.toolkit import Requirement, fit_of, fitted_schema, is_estimator, read_rows, schema_of
from kpp.features import landmarks
from kpp.foundation.arguments import guard_exports
from kpp.games import AbstractValueFunction
from kpp.lazy.assembly import explain_blocks
from kpp.lazy.blocks import is_chunked
from kpp.runtime.forks import refuse_forked_process
from kpp.runtime.programs import release_programs
from kpp.typing import RngKey

# More training data than this are represented by landmarks, chosen among at most `_MAX_SAMPLE` rows at even distances.
_MAX_BACKGROUND, _LANDMARKS, _MAX_SAMPLE = 1000, 200, 4000


def explain(
    predictor: object,
    x: object,
    *,
    explainer: str | AbstractExplainer = "rkhs-shap",
    value_function: str | AbstractValueFunction | None = None,
    rng_key: RngKey | None = None,
    **options: object,
) -> Explanation:
    """Explain the predictions at some points.

    Args:
        predictor: A `kpp.Fit` (its draws make the explanation a posterior), a `kpp.RKHSFunction`, one with the names of
            its features (`kpp.NamedFunction`), a fitted scikit-learn estimator, a model of another library for which a
            converter is registered, or a function from points (p, d) to predictions (`kpp.posterior_function` and
            `kpp.DrawFunction` are such functions, with posterior draws). From an estimator, each explainer takes the
            function that it needs: the RKHS function (see `kpp.as_rkhs_function`), the probabilities of a classifier,
            or the predictions. A Gaussian process is explained with its posterior, see `kpp.as_gp_posterior`, an
            estimator of kpp as its `kpp.Fit`, and a search as its best estimator. None for an explainer that knows its
            model, "shap".
        x: The points to explain, (p, d), a data frame or an xarray object with names. A Dask array, a Dask data frame
            or an xarray object with chunks gives an explanation that is computed block by block when it is needed,
            with ``jax.random.fold_in(rng_key, b)`` as the key of block b; only the first block is computed at once.
        explainer: The registered name of an explainer, or an instance of one.
        value_function: The registered name of a value function, or an instance of one; for explainers that value
            coalitions. By default "interventional", if the explainer has no default of its own.
        rng_key: A JAX random key, for explainers that sample.
        **options: Fields of the explainer and of the value function; an option that both have goes to the explainer.
            ``background``, reference points (m, d), goes to both. It may be a data frame, which then defines the levels
            of columns of text.
            If a background is required and not given, it is the training data of a `kpp.Fit` or the points of a
            `kpp.NamedFunction`, or 200 landmarks of them if there are more than 1000 rows. The attribute ``background``
            of the explanation then says so.

    Returns:
        The explanation.

    Raises:
        TypeError: If an option is unknown or missing, or the predictor is not of the kind that the explainer needs.
        ValueError: If a name is not registered, or numbers are not finite or of the wrong shape.
        RuntimeError: If this process was forked after JAX had started.
    """
    refuse_forked_process()
    release_programs()
    request = ExplainRequest(_chosen(predictor), explainer, value_function, options)
    x = as_table(x)
    with _precision(predictor):
        if is_chunked(x):
            return Explanation(explain_blocks(request.quiet().dataset, x, rng_key=rng_key, columns=request.columns))
        return request.explain(x, rng_key)


@dataclasses.dataclass
class ExplainRequest:
    """What the user wants explained, by what; it explains many blocks of rows after reading the predictor once."""

    predictor: Any
    explainer: str | AbstractExplainer
    value_function: str | AbstractValueFunction | None
    options: dict[str, Any]
    _ready: _Ready | None = None

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns of data frames that the predictor reads; None if it does not know columns."""
        schema = fitted_schema(fit_of(self.predictor) or self.predictor)
        return None if schema is None else schema.feature_names

    def quiet(self) -> ExplainRequest:
        """Return the request without progress bars of the explainer, unless they were asked for."""
        has_bars = isinstance(self.explainer, str) and "progress" in _fields(_class_of(self.explainer))
        options = {"progress": False, **self.options} if has_bars else self.options
        return dataclasses.replace(self, options=options)

    def dataset(self, x: object, rng_key: RngKey | None) -> xr.Dataset:
        """Return the dataset of the explanation of some rows."""
        return self.explain(x, rng_key).dataset

    def explain(self, x: object, rng_key: RngKey | None) -> Explanation:
        """Explain some rows."""
        x = as_table(x)
        if self._ready is not None:
            rows = read_rows(x, self._ready.inputs.schema)[0]
            return self._ready.explain(jnp.asarray(rows, rows.dtype), rng_key)
        cls, options = _class_of(self.explainer), dict(self.options)
        value_function = self.value_function
        if isinstance(self.explainer, str) and value_function is None and _needs_game(cls):
            value_function = "interventional"
        reference = None
        if "background" not in options:
            known = fit_of(self.predictor) or self.predictor
            reference = _training_background(known, self.explainer, value_function)
        if reference is not None:
            options["background"] = reference.points
        elif "background" in options:
            options["background"] = as_table(options["background"], "background")
        required, schema = _as_required(self.predictor, cls.requires, options.get("background"), x)
        read = read_rows(x, schema) if issubclass(cls, AbstractPointsExplainer) else None
        if schema is None and is_table(x) and self.predictor is not None:
            schema = schema_of(x) if read is None else read[1]
        if "background" in options:
            options["background"] = read_rows(options["background"], schema, "background")[0]
        built = _build(self.explainer, value_function, _with_feature_names(value_function, options, schema, x))
        record = {} if reference is None else {"background": reference.name}
        if read is None or not isinstance(built, AbstractPointsExplainer):
            names = schema if is_estimator(self.predictor) and not isinstance(required, EstimatorFunction) else None
            explanation = _call(built, built.explain, required, _with_names(x, names), rng_key=rng_key)
            explanation.attrs.update(record)
            return explanation
        groups = getattr(built, "groups", None)
        inputs = Inputs.create(required, *read, built.requires, background=built.reference_points, groups=groups)
        self._ready = _Ready(built, inputs, record)
        return self._ready.explain(inputs.x, rng_key)


class _Ready(NamedTuple):
    """An explainer of points with the inputs of some rows, which are replaced by others."""

    built: AbstractPointsExplainer
    inputs: Inputs
    record: dict[str, str]

    def explain(self, x: Float[Array, "p d"], rng_key: RngKey | None) -> Explanation:
        """Explain points."""
        inputs = dataclasses.replace(self.inputs, x=x)
        explanation = _call(self.built, self.built.explain_inputs, inputs, rng_key=rng_key)
        explanation.attrs.update(self.record)
        return explanation


def _call(
    explainer: AbstractExplainer, method: Callable[..., object], *arguments: object, rng_key: RngKey | None
) -> Explanation:
    """Call an explainer; an error of a plugin's explainer says whose it is."""
    try:
        explanation = method(*arguments, rng_key=rng_key)
        if not isinstance(explanation, Explanation):
            raise TypeError(
                f"`{type(explainer).__name__}.{method.__name__}` must return a kpp.Explanation, got "
                f"{type(explanation).__name__}"
            )
        Explanation(explanation.dataset)  # checked once more, because its arrays may have been changed since
    except Exception as error:
        owner = registry.owner_of("explainers", type(explainer))
        if owner is not None:
            error.add_note(f"The explainer {type(explainer).__name__} belongs to {owner}.")
        raise
    return explanation


class _Background(NamedTuple):
    """A background that `explain` chose, and its name for the record of the explanation."""

    points: Float[np.ndarray, "m d"]
    name: str


def _needs_game(cls: Any) -> bool:
    """Return whether an explainer of points cannot be built without a value function."""
    return cls.requires != "pairs" and _fields(cls).get("value_function", False)


def _training_background(predictor: object, explainer: object, value_function: object) -> _Background | None:
    """Return the training data of a fit as the background, if one is required and the fit has a table of them."""
    owners: list[Any] = [_look_up("explainers", explainer, "explainer")] if isinstance(explainer, str) else []
    owners += [_look_up("value_functions", value_function, "value_function")] if isinstance(value_function, str) else []
    schema = fitted_schema(predictor)
    if schema is None or not any(_fields(owner).get("background", False) for owner in owners):
        return None
    points = np.asarray(getattr(predictor, "data", {}).get("x", np.zeros(0)))
    if points.ndim != 2 or points.shape[1] != schema.num_features:
        return None
    source = "points of the function" if isinstance(predictor, NamedFunction) else "training data"
    if len(points) <= _MAX_BACKGROUND:
        return _Background(points, source)
    evenly = points[:: -(-len(points) // _MAX_SAMPLE)]
    return _Background(np.asarray(landmarks(evenly, _LANDMARKS).points), f"{_LANDMARKS} landmarks of the {source}")


def _with_feature_names(
    value_function: object, options: dict[str, Any], schema: Schema | None, x: object
) -> dict[str, Any]:
    """Add the names of the features for a value function that looks them up, if a fit or a data frame has names."""
    named = schema is not None and (is_table(x) or not schema.has_default_names)
    if schema is None or not named or not isinstance(value_function, str) or "feature_names" in options:
        return options
    return {**options, **_if_field(value_function, feature_names=schema.feature_names)}


def _if_field(value_function: str, **options: object) -> dict[str, Any]:
    """Return the options that are fields of a value function."""
    fields = _fields(_look_up("value_functions", value_function, "value_function"))
    return {name: value for name, value in options.items() if name in fields}


def _build(
    explainer: str | AbstractExplainer, value_function: object, options: Mapping[str, object]
) -> AbstractExplainer:
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
        if isinstance(value_function, str) and "background" in own:
            rest |= _if_field(value_function, background=own["background"])
        built = _build_value_function(value_function, rest, explainer, fields)
        own |= {} if built is None else {"value_function": built}
    return _construct(cls, own, f"explainer {explainer!r}")


def _class_of(explainer: object) -> Any:
    """Return the class of an explainer, or the one that a name is registered for."""
    if isinstance(explainer, AbstractExplainer):
        return type(explainer)
    if not isinstance(explainer, str):
        raise TypeError(f"`explainer` must be a registered name or an explainer, got {explainer!r}")
    return _look_up("explainers", explainer, "explainer")


def _look_up(kind: str, name: str, argument: str) -> Any:
    """Return the class that a name is registered for; the message for an unknown name begins with the argument."""
    try:
        return registry.get(kind, name)
    except registry.PluginError as error:
        raise registry.PluginError(f"`{argument}`: {error}") from None


def _build_value_function(
    value_function: object, options: Mapping[str, object], explainer: str, explainer_fields: dict[str, bool]
) -> AbstractValueFunction | None:
    """Return the value function, or None if the explainer has its own default."""
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
    cls = _look_up("value_functions", value_function, "value_function")
    fields = _fields(cls)
    _refuse_unknown(options, {**known, f"value function {value_function!r}": fields})
    return _construct(cls, options, f"value function {value_function!r}")


def _fields(cls: type) -> dict[str, bool]:
    """Return the constructor's options: a mapping from fields to whether they are required."""
    missing = dataclasses.MISSING
    return {
        field.name: field.default is missing and field.default_factory is missing
        for field in dataclasses.fields(cls)
        if field.init
    }


def _refuse_unknown(options: Iterable[str], known: Mapping[str, Iterable[str]]) -> None:
    unknown = sorted(set(options).difference(*known.values()))
    if unknown:
        listed = "; ".join(f"{owner} takes {sorted(fields)}" for owner, fields in known.items())
        raise TypeError(f"unknown options {', '.join(f'`{name}`' for name in unknown)}: {listed}")


def _construct(cls: type, options: Mapping[str, object], what: str) -> Any:
    missing = [f"`{name}`" for name, required in _fields(cls).items() if required and name not in options]
    if missing:
        raise TypeError(f"{what} needs {', '.join(missing)}")
    return cls(**options)


def _precision(predictor: object) -> AbstractContextManager[Any]:
    """Return a context with the precision of a predictor: scikit-learn's numbers have double precision in any case."""
    return jax.enable_x64(True) if is_estimator(predictor) else contextlib.nullcontext()


def _chosen(predictor: object) -> object:
    """Return the estimator that a search over hyperparameters has chosen, or the predictor itself."""
    return getattr(predictor, "best_estimator_", predictor)


def _as_required(predictor: object, requires: Requirement, background: object, x: object) -> tuple[Any, Schema | None]:
    """Convert a model of another library to what the explainer requires; also return the schema of the predictor."""
    if not is_estimator(predictor):
        converted = _as_explainable(predictor, requires)
        return converted, fitted_schema(converted)
    fit = fit_of(predictor)
    if fit is not None:
        return EstimatorFunction(predictor, fit.schema) if requires == "callable" else fit, fit.schema
    if requires == "callable":
        function = EstimatorFunction.create(predictor, background if is_table(background) else None, x)
        return function, function.schema
    names = getattr(predictor, "feature_names_in_", None)
    schema = None if names is None else Schema(tuple(str(name) for name in names))
    if requires == "rkhs_function":
        return as_explainable(predictor), schema
    if requires == "probabilities" and hasattr(predictor, "predict_proba"):
        return predictor.predict_proba, schema
    return predictor, schema


def _as_explainable(predictor: Any, requires: Requirement) -> Any:
    """Convert a model for which a converter is registered; one that can be called needs no conversion to be called."""
    if requires not in ("rkhs_function", "callable") or not is_foreign(predictor):
        return predictor
    try:
        return as_explainable(predictor)
    except (TypeError, ValueError):
        if requires == "callable" and callable(predictor):
            return predictor
        raise


def _with_names(x: object, schema: Schema | None) -> Any:
    """Return points as a data frame with the columns that an estimator was fitted on, whose names explainers use."""
    if schema is None:
        return x
    import pandas as pd

    return pd.DataFrame(schema.decode(schema.read(x)))


guard_exports(globals())
