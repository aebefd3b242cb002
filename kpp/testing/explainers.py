"""The laws of an explainer. Each is a check of one example: an explainer, a predictor and points to explain."""

from __future__ import annotations

import functools
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.typing import ArrayLike

from kpp.explanations import AbstractExplainer, DrawFunction, Explanation, resolve
from kpp.explanations.toolkit import Requirement
from kpp.foundation.distribution import versions
from kpp.functions import RKHSFunction
from kpp.testing.compare import assert_close, assert_raises, laws_in, once_per_example, spec_copy, tree_copy

_SAMPLE_DIMS = ("chain", "draw")


def declares_what_it_needs(explainer: AbstractExplainer, predictor: object, x: ArrayLike) -> None:
    """The class declares what it requires of the predictor and whether it is additive."""
    requires, additive = type(explainer).requires, type(explainer).additive
    assert requires in get_args(Requirement), f"`requires` must be one of {get_args(Requirement)}, got {requires!r}"
    assert isinstance(additive, bool), f"`additive` must be True or False, got {additive!r}"


def returns_an_explanation(explainer: AbstractExplainer, predictor: object, x: ArrayLike) -> None:
    """Explain returns an Explanation with all instances, features or groups, and draws; for pairs, of differences."""
    explanation = _explanation(explainer, predictor, x)
    assert isinstance(explanation, Explanation), f"`explain` returns {type(explanation).__name__}"
    function, points, schema = resolve(predictor, x, explainer.requires)
    sizes = explanation.values.sizes
    found = {"instance": sizes["instance"], "feature": len(_columns_explained(explanation))}
    expected = {"instance": points.shape[0], "feature": schema.num_features}
    assert found == expected, f"the values have sizes {found}, expected {expected}"
    if isinstance(function, RKHSFunction) and len(function.batch_shape) == len(_SAMPLE_DIMS):
        draws = tuple(sizes.get(dim) for dim in _SAMPLE_DIMS)
        assert draws == function.batch_shape, f"the values have (chain, draw) {draws}, not {function.batch_shape}"
    data, groups = explanation.data, explanation.attrs.get("groups", {})
    if explainer.requires == "pairs":
        points = points[:, 0] - points[:, 1]
    if not groups:
        np.testing.assert_allclose(data.values, points, err_msg="data")
        return
    for name in (name for name in explanation.feature_names if name not in groups):
        np.testing.assert_allclose(data.sel(feature=name), points[:, schema.index(name)], err_msg=f"data of {name}")


def predictions_are_the_predictors(explainer: AbstractExplainer, predictor: object, x: ArrayLike) -> None:
    """The predictions of the explanation are the predictions of the predictor."""
    function, points, _ = resolve(predictor, x, explainer.requires)
    assert_close(_explanation(explainer, predictor, x).predictions.values, function(points), "predictions", factor=100)


def explains_functions_with_draws(explainer: AbstractExplainer, predictor: object, x: ArrayLike) -> None:
    """A function with draws, as a `kpp.Fit` has them, is explained: each draw, or of a callable their mean."""
    drawn = _with_draws(explainer, predictor, x)
    if drawn is None:
        return
    sizes = _explanation(explainer, drawn, x).values.sizes
    found = tuple(sizes.get(dim) for dim in _SAMPLE_DIMS)
    means = explainer.requires == "callable" and found == (None, None)
    assert means or found == (1, 2), f"the values of a function with draws (1, 2) have (chain, draw) {found}"
    if not means:
        predictions_are_the_predictors(explainer, drawn, x)
    additive(explainer, drawn, x)


def additive(explainer: AbstractExplainer, predictor: object, x: ArrayLike) -> None:
    """If the explainer is additive, base value plus contributions equals the prediction (relative error 1e-8)."""
    if not type(explainer).additive:
        return
    explanation = _explanation(explainer, predictor, x)
    total = explanation.base_values + explanation.values.sum("feature")
    predictions = explanation.predictions
    total = total.transpose(*predictions.dims)
    gap = float(np.abs(total - predictions).max())
    scale = max(1.0, float(np.abs(predictions).max()), float(np.abs(explanation.values).max()))
    allowed = (1e-8 if explanation.values.dtype == np.float64 else 1e-3) * scale
    assert gap <= allowed, f"base value plus contributions miss the prediction by {gap:.3g}, allowed {allowed:.3g}"


def instances_are_independent(explainer: AbstractExplainer, predictor: object, x: ArrayLike) -> None:
    """Without randomness, the explanation of an instance does not depend on the other instances."""
    points = np.asarray(x)
    try:
        together, alone = explainer.explain(predictor, points), explainer.explain(predictor, points[-1:])
    except (TypeError, ValueError):  # a random explainer needs a key
        return
    expected = together.values.isel(instance=slice(-1, None))
    assert_close(alone.values.values, expected.values, "the last instance alone and among others", factor=1000)


def same_key_same_explanation(explainer: AbstractExplainer, predictor: object, x: ArrayLike) -> None:
    """The same key gives the same explanation."""
    first, second = _explanation(explainer, predictor, x), _explain(explainer, predictor, x)
    assert first.dataset.equals(second.dataset), "two explanations with one key differ"


def records_how_it_was_made(explainer: AbstractExplainer, predictor: object, x: ArrayLike) -> None:
    """The attributes name the explainer and the version of kpp, and can be saved."""
    attrs = _explanation(explainer, predictor, x).attrs
    assert attrs.get("explainer"), f"the attributes name no explainer: {sorted(attrs)}"
    found = attrs.get("versions", {})
    assert found.get("kpp") == versions()["kpp"], f"the attributes have the versions {found}"


def takes_feature_names_from_a_data_frame(explainer: AbstractExplainer, predictor: object, x: ArrayLike) -> None:
    """The columns of a data frame name the features, or the columns of groups; nothing else changes."""
    if explainer.requires == "pairs":
        return
    points = np.asarray(x)
    names = [str(name) for name in resolve(predictor, x, explainer.requires).schema.feature_names]
    if not hasattr(predictor, "schema"):
        names = [f"column {j}" for j in range(points.shape[1])]
    explanation = _explain(explainer, predictor, pd.DataFrame(points, columns=names))
    found, groups = _columns_explained(explanation), explanation.attrs.get("groups")
    found, expected = (sorted(found), sorted(names)) if groups else (found, names)
    assert found == expected, f"the features are called {found}, not {expected}"
    plain = _explanation(explainer, predictor, x)
    assert_close(explanation.values.values, plain.values.values, "values from a data frame and from an array")


def refuses_a_wrong_predictor(explainer: AbstractExplainer, predictor: object, x: ArrayLike) -> None:
    """A predictor of the wrong type raises a TypeError that says what is needed."""
    message = assert_raises(TypeError, lambda: _explain(explainer, "no predictor", x), "a predictor that is a string")
    assert message, "the TypeError says nothing"
    if explainer.requires in ("rkhs_function", "pairs"):
        assert_raises(TypeError, lambda: _explain(explainer, lambda points: points[:, 0], x), "a plain function")


def refuses_bad_points(explainer: AbstractExplainer, predictor: object, x: ArrayLike) -> None:
    """Points that are empty, not finite or of the wrong rank raise a ValueError."""
    points = np.array(x, dtype=float)
    missing = points.copy()
    missing.flat[0] = np.nan
    for what, bad in (("NaN", missing), ("no row", points[:0]), ("a single point without its axis", points[0])):
        assert_raises(ValueError, functools.partial(_explain, explainer, predictor, bad), f"`x` with {what}")


def survives_the_round_trip_as_a_pytree(explainer: AbstractExplainer, predictor: object, x: ArrayLike) -> None:
    """Flattening and unflattening gives the same explainer."""
    tree_copy(explainer)


def survives_the_round_trip_through_a_spec(explainer: AbstractExplainer, predictor: object, x: ArrayLike) -> None:
    """A registered explainer written as JSON and read back gives the same explanation."""
    copy = spec_copy(explainer)
    if copy is not None:
        first, second = _explanation(explainer, predictor, x), _explain(copy, predictor, x)
        assert_close(second.values.values, first.values.values, "values of the copy and of the explainer", factor=100)


LAWS = laws_in(globals())


def _with_draws(explainer: AbstractExplainer, predictor: object, x: ArrayLike) -> Any:
    """Return a function with two draws, the predictor's and minus half of it, or None if there is none."""
    function = resolve(predictor, x, explainer.requires).function
    if (
        explainer.requires in ("rkhs_function", "pairs")
        and isinstance(function, RKHSFunction)
        and not function.batch_shape
    ):
        coefficients = jnp.stack([function.coefficients, -0.5 * function.coefficients])[None]
        return RKHSFunction.over_draws(
            function.kernel, function.points, coefficients, function.intercept, batch_shape=(1, 2)
        )
    if explainer.requires == "callable" and not isinstance(function, (RKHSFunction, DrawFunction)):
        return DrawFunction(lambda points: np.multiply.outer([[1.0, -0.5]], np.asarray(function(points))))
    return None


def _columns_explained(explanation: Explanation) -> list[str]:
    """Return the features of an explanation, groups replaced by their columns."""
    groups = explanation.attrs.get("groups", {})
    return [column for name in explanation.feature_names for column in groups.get(name, [name])]


def _explain(explainer: AbstractExplainer, predictor: object, x: ArrayLike | pd.DataFrame) -> Any:
    return explainer.explain(predictor, x, rng_key=jax.random.key(0))


_explanation = once_per_example(_explain)
