"""`kpp.explain`: from names and options to an explainer, and from a predictor and points to an explanation."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float

from kpp import registry
from kpp.conversion.toolkit import as_explainable, is_foreign
from kpp.data.tables import Schema, as_table, is_table
from kpp.explanations import AbstractExplainer, AbstractPointsExplainer, EstimatorFunction, Explanation
from kpp.explanations.explainer import as_explanation
from kpp.explanations.functions.named_functions import NamedFunction
from kpp.explanations.toolkit import ReadPredictor, Requirement, fit_of, fitted_schema, is_estimator, read_rows
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
    explainer: str | AbstractExplainer | type[AbstractExplainer] = "rkhs-shap",
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
        explainer: The registered name of an explainer, its class, or an instance of it.
        value_function: The registered name of a value function, or an instance of one; for explainers that value
            coalitions. By default "interventional", if the explainer has no default of its own.
        rng_key: A JAX random key, for explainers that sample.
        **options: Fields of the explainer and of the value function; an option that both have goes to the explainer.
            ``background``, reference points (m, d), goes to both. It may be a data frame, which then defines the levels
            of columns of text.
            If a background is required and not given, it is the training data of a `kpp.Fit` or the points of a
            `kpp.NamedFunction`, or 200 landmarks of them if there are more than 1000 rows. The attribute ``background``
            of the explanation then says so.

            Options of the explainers (*: required): "bayes-lime" takes num_perturbations, kernel_width, around,
            discretize, categorical; "bayes-shap" takes num_perturbations, coalitions; "cxplain" takes y, loss,
            replacement, categorical, num_bootstraps, hidden, image_shape, num_epochs, batch_size, learning_rate; "gpec"
            takes base_explainer*, explainer_options, output, margin, level, boundary, decay, concentration,
            lengthscale, variance, feature_covariance, selection, rbf, normalized, standardize, noise, num_repeats,
            min_noise_variance, num_neighbors, max_landmarks, num_inducing; "integrated-gradients" takes tolerance;
            "kernel-shap" takes method, num_coalitions, tolerance, order, effects, design; "lime" takes
            num_perturbations, kernel_width, penalty, around, discretize, categorical; "naive-gp" takes base_explainer*,
            explainer_options, output, lengthscale, variance, selection, standardize, noise, num_repeats,
            min_noise_variance, num_inducing; "pref-shap" takes method, num_coalitions, tolerance, covariance,
            instances_at_once; "rkhs-shap" takes method, num_coalitions, tolerance, order, effects, interactions,
            covariance, covariance_at, scale, batch_size, instances_at_once; "shap" takes shap_explainer*,
            check_additivity;
            "shapley-sampling" takes num_coalitions, tolerance. Most also take background, groups and progress.

            Options of the value functions: "causal" takes graph*, feature_names, conditionals, samples_per_point, seed;
            "causal-embedding" takes graph*, feature_names, kernel, regularization, samples_per_point, seed;
            "observational" takes regularization, kernel, estimator, end_points, landmarks; "observational-copula" takes
            samples_per_point, seed; "observational-gaussian" takes samples_per_point, seed; "observational-masked"
            takes regularization, kernel, masks_per_point, seed; "preferential-context" takes contexts*, regularization,
            conditional, kernel, end_points, matches, batch_size; "preferential-items" takes regularization,
            conditional, kernel, end_points, opponents, contexts, batch_size. All but two also take background.

    Returns:
        The explanation.

    Raises:
        TypeError: If an option is unknown or missing, or the predictor is not of the kind that the explainer needs.
        ValueError: If a name is not registered, or numbers are not finite or of the wrong shape.
        RuntimeError: If this process was forked after JAX had started.

    Example:
        >>> kpp.explain(fit, x[:3], background=x).values.sizes
        Frozen({'chain': 1, 'draw': 200, 'instance': 3, 'feature': 2})
    """
    refuse_forked_process()
    release_programs()
    x = as_table(x)
    # scikit-learn's numbers have double precision in any case.
    with jax.enable_x64(True) if is_estimator(predictor) else contextlib.nullcontext():
        if is_chunked(x):
            reader = read(predictor, x, explainer, value_function, without_progress(explainer, options))
            return Explanation(explain_blocks(reader.dataset, x, rng_key=rng_key, columns=reader.columns))
        return read(predictor, x, explainer, value_function, options).explain(x, rng_key)


def read(
    predictor: object,
    x: Any,  # without chunks it also gives the levels of an estimator of another library
    explainer: str | AbstractExplainer | type[AbstractExplainer],
    value_function: str | AbstractValueFunction | None,
    options: Mapping[str, Any],
) -> Reader:
    """Read what is explained, and by what, once for all rows; the arguments are those of `explain`."""
    predictor = getattr(predictor, "best_estimator_", predictor)  # of a search over hyperparameters
    fit = fit_of(predictor)
    plan = _Plan.create(explainer, value_function, options)
    reference = plan.training_background(predictor if fit is None else fit)
    background = as_table(options.get("background"), "background") if reference is None else reference.points
    required, schema = _as_required(predictor, fit, plan.explainer.cls.requires, background, x)
    known = schema
    if schema is None and is_table(x) and predictor is not None and all(isinstance(name, str) for name in x.columns):
        known = Schema(tuple(x.columns))
    if background is not None:
        background = read_rows(background, known, "background")[0]
    is_named = known is not None and (is_table(x) or not known.has_default_names)
    built = plan.build(background, known.feature_names if known is not None and is_named else None)
    names = None
    if not isinstance(built, AbstractPointsExplainer):
        names = schema if is_estimator(predictor) and not isinstance(required, EstimatorFunction) else None
    elif predictor is not None:
        required = ReadPredictor.read(required, built.requires, schema)
    record = {} if reference is None else {"background": reference.name}
    return Reader(built, required, record, None if schema is None else schema.feature_names, names)


def without_progress(
    explainer: str | AbstractExplainer | type[AbstractExplainer], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return options without progress bars of the explainer, unless they were asked for."""
    has_bars = isinstance(explainer, str) and "progress" in _Part.find("explainer", explainer).fields
    return {"progress": False, **options} if has_bars else dict(options)


@dataclasses.dataclass(frozen=True)
class Reader:
    """A predictor that has been read, and its explainer, to explain any number of tables of rows."""

    explainer: AbstractExplainer
    predictor: Any  # as the explainer takes it
    record: dict[str, str]  # attributes of the explanations
    columns: tuple[str, ...] | None  # those of data frames that the predictor reads; None if it does not know columns
    names: Schema | None  # that an explainer finds in the rows only; None if the predictor brings them along

    def dataset(self, x: object, rng_key: RngKey | None) -> xr.Dataset:
        """Return the dataset of the explanation of some rows."""
        return self.explain(x, rng_key).dataset

    def explain(self, x: object, rng_key: RngKey | None) -> Explanation:
        """Explain some rows; an error of a plugin's explainer says whose it is."""
        kind = type(self.explainer)
        if self.names is not None:
            import pandas as pd

            x = pd.DataFrame(self.names.decode(self.names.read(x)))
        try:
            explanation = as_explanation(self.explainer.explain(self.predictor, x, rng_key=rng_key), self.explainer)
            Explanation(explanation.dataset)  # checked once more, because its arrays may have been changed since
        except Exception as error:
            owner = registry.owner_of("explainers", kind)
            if owner is not None:
                error.add_note(f"The explainer {kind.__name__} belongs to {owner}.")
            raise
        explanation.attrs.update(self.record)
        return explanation


class _Background(NamedTuple):
    """A background that `explain` chose, and its name for the record of the explanation."""

    points: Float[np.ndarray, "m d"]
    name: str


class _Part(NamedTuple):
    """The class of an explainer or of a value function, its name in messages, and whether its options are required."""

    cls: Any
    title: str
    fields: dict[str, bool]

    @classmethod
    def find(cls, argument: str, name: str) -> _Part:
        """Return what is registered under a name; the message for an unknown name begins with the argument."""
        try:
            part = registry.get(f"{argument}s", name)
        except registry.PluginError as error:
            raise registry.PluginError(f"`{argument}`: {error}") from None
        return cls.of(part, f"{argument.replace('_', ' ')} {name!r}")

    @classmethod
    def of(cls, part: Any, title: str) -> _Part:
        """Return a class with its fields."""
        missing = dataclasses.MISSING
        fields = {
            field.name: field.default is missing and field.default_factory is missing
            for field in dataclasses.fields(part)
            if field.init
        }
        return cls(part, title, fields)

    def build(self, options: Mapping[str, Any]) -> Any:
        """Return the explainer or the value function with those of the options that it takes."""
        missing = [f"`{name}`" for name, required in self.fields.items() if required and name not in options]
        if missing:
            raise TypeError(f"{self.title} needs {', '.join(missing)}")
        return self.cls(**{name: value for name, value in options.items() if name in self.fields})


class _Plan(NamedTuple):
    """How an explainer is built."""

    explainer: _Part
    game: _Part | AbstractValueFunction | None  # None if the explainer has none or its own default
    options: Mapping[str, Any]  # of both
    ready: AbstractExplainer | None  # the explainer if the user has built it

    @classmethod
    def create(cls, explainer: object, value_function: object, options: Mapping[str, Any]) -> _Plan:
        """Look up names; raise TypeError if options are unknown, or the value function is missing or has no place."""
        if isinstance(explainer, AbstractExplainer):
            given = [*options, *(["value_function"] if value_function is not None else [])]
            if given:
                raise TypeError(f"`explainer` is ready-made, so its options {given} belong to its constructor")
            return cls(_Part(type(explainer), "", {}), None, options, explainer)
        if isinstance(explainer, type) and issubclass(explainer, AbstractExplainer):
            part = _Part.of(explainer, f"explainer {explainer.__name__}")
        elif isinstance(explainer, str):
            part = _Part.find("explainer", explainer)
        else:
            raise TypeError(f"`explainer` must be a registered name or an explainer, got {explainer!r}")
        game = _game_of(part, value_function, options)
        _refuse_unknown(options, part, game)
        return cls(part, game, options, None)

    def training_background(self, predictor: object) -> _Background | None:
        """Return the training data of a fit as the background, if one is missing and the fit has a table of them."""
        parts = [part for part in (self.explainer, self.game) if isinstance(part, _Part)]
        needed = any(part.fields.get("background", False) for part in parts)
        schema = fitted_schema(predictor)
        if "background" in self.options or not needed or schema is None:
            return None
        points = getattr(predictor, "data", {}).get("x")  # pairs with contexts and teams are tuples
        if getattr(points, "shape", ())[1:] != (schema.num_features,):
            return None
        points = np.asarray(points)
        source = "points of the function" if isinstance(predictor, NamedFunction) else "training data"
        if len(points) <= _MAX_BACKGROUND:
            return _Background(points, source)
        evenly = points[:: -(-len(points) // _MAX_SAMPLE)]
        return _Background(np.asarray(landmarks(evenly, _LANDMARKS).points), f"{_LANDMARKS} landmarks of the {source}")

    def build(self, background: object, feature_names: tuple[str, ...] | None) -> AbstractExplainer:
        """Return the explainer, with names of features for a value function that looks them up."""
        if self.ready is not None:
            return self.ready
        shared = {} if background is None else {"background": background}
        own: dict[str, Any] = {**self.options, **shared}
        game = self.game
        if isinstance(game, _Part):
            others = {name: value for name, value in self.options.items() if name not in self.explainer.fields}
            names = {} if feature_names is None else {"feature_names": feature_names}
            game = game.build({**names, **others, **shared})
        return self.explainer.build(own if game is None else {**own, "value_function": game})


def _refuse_unknown(options: Mapping[str, Any], explainer: _Part, game: object) -> None:
    """Raise TypeError for options that neither the explainer nor its value function takes."""
    listed = {explainer.title: sorted(explainer.fields.keys() - {"value_function"})}
    if isinstance(game, _Part):
        listed[game.title] = sorted(game.fields)
    unknown = sorted(set(options).difference(*listed.values()))
    if unknown:
        takes = "; ".join(f"{owner} takes {fields}" for owner, fields in listed.items())
        raise TypeError(f"unknown options {', '.join(f'`{name}`' for name in unknown)}: {takes}")


def _game_of(
    explainer: _Part, value_function: object, options: Mapping[str, Any]
) -> _Part | AbstractValueFunction | None:
    """Return the value function of an explainer, by default "interventional" if an explainer of points needs one."""
    if "value_function" not in explainer.fields:
        if value_function is not None:
            takes = sorted(explainer.fields)
            raise TypeError(f"{explainer.title} takes no `value_function`; its options are {takes}")
        return None
    if value_function is None and explainer.fields["value_function"]:
        if explainer.cls.requires == "pairs":
            _refuse_unknown(options, explainer, None)
            names = sorted(registry.value_functions())
            raise TypeError(f"{explainer.title} needs a `value_function`: one of {names}")
        value_function = "interventional"
    if value_function is None or isinstance(value_function, AbstractValueFunction):
        return value_function
    if not isinstance(value_function, str):
        raise TypeError(f"`value_function` must be a registered name or a value function, got {value_function!r}")
    return _Part.find("value_function", value_function)


def _as_required(
    predictor: Any, fit: Any, requires: Requirement, background: object, x: object
) -> tuple[Any, Schema | None]:
    """Convert a model of another library to what the explainer requires; also return the schema of the predictor."""
    if not is_estimator(predictor):
        converted = _as_explainable(predictor, requires)
        return converted, fitted_schema(converted)
    if fit is not None:
        return EstimatorFunction(predictor, fit.schema) if requires == "callable" else fit, fit.schema
    if requires == "callable":
        table, rows = (background if is_table(background) else None), (None if is_chunked(x) else x)
        function = EstimatorFunction.create(predictor, table, rows)
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


guard_exports(globals())
