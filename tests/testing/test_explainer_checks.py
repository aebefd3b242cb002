"""Every check of explainers passes on an honest one and catches the violation planted for it."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.explanations import AbstractExplainer, Explanation, resolve
from kpp.functions import RKHSFunction
from kpp.kernels import RBF
from kpp.testing import check_explainer
from kpp.testing.suite import checks_of

RNG = np.random.default_rng(0)
PREDICTOR = RKHSFunction(RBF(1.2), RNG.normal(size=(4, 2)), RNG.normal(size=4), intercept=0.3)
X = RNG.normal(size=(2, 2))
CHECKS = {check.__name__: check for check in checks_of(AbstractExplainer)}


class Honest(AbstractExplainer):
    """Splits what a prediction differs from a reference's equally; the planted ones change one thing."""

    reference: jax.Array = eqx.field(default=(0.2, -0.4), converter=jnp.asarray)

    requires: ClassVar = "rkhs_function"
    additive: ClassVar = True

    def explain(self, predictor, x, *, rng_key=None):
        return Explanation.create(**self.parts(predictor, x), attrs={"explainer": "honest"})

    def parts(self, predictor, x) -> dict[str, Any]:
        function, points, schema = resolve(predictor, x, self.requires)
        predictions, base = function(points), function(self.reference[None])[..., 0]
        gaps = (predictions - base[..., None])[..., None]
        values = jnp.repeat(gaps, points.shape[1], axis=-1) / points.shape[1]
        return {
            "values": values,
            "base_values": base,
            "predictions": predictions,
            "data": points,
            "schema": schema,
            "draws": bool(function.batch_shape),
        }


class Grouped(Honest):
    """Explains both features as one."""

    columns: tuple[int, ...] = eqx.field(static=True, default=(0, 1))

    def parts(self, predictor, x):
        parts = Honest.parts(self, predictor, x)
        names = parts.pop("schema").feature_names
        together = {
            "values": parts["values"].sum(axis=-1, keepdims=True),
            "data": np.full((len(parts["data"]), 1), np.nan),
        }
        return parts | together | {"feature_names": ["both"], "groups": {"both": [names[j] for j in self.columns]}}


class NotAnExplainer(eqx.Module):
    pass


class Vague(Honest):
    requires: ClassVar = "a model"


class Array(Honest):
    def explain(self, predictor, x, *, rng_key=None):
        return self.parts(predictor, x)["values"]


class OtherPredictions(Honest):
    def parts(self, predictor, x):
        parts = Honest.parts(self, predictor, x)
        return parts | {"predictions": parts["predictions"] + 1.0}


class AveragesDraws(Honest):
    def parts(self, predictor, x):
        parts = Honest.parts(self, predictor, x)
        means = {name: parts[name].mean((0, 1)) for name in ("values", "base_values", "predictions")}
        return parts | means | {"draws": False} if parts["draws"] else parts


class MissesTheBase(Honest):
    def parts(self, predictor, x):
        return Honest.parts(self, predictor, x) | {"base_values": 0.0}


class Centered(Honest):
    def parts(self, predictor, x):
        parts = Honest.parts(self, predictor, x)
        return parts | {"values": parts["values"] - jnp.mean(parts["values"])}


class Random(Honest):
    def parts(self, predictor, x):
        parts = Honest.parts(self, predictor, x)
        return parts | {"values": parts["values"] + np.random.default_rng().normal()}


class Anonymous(Honest):
    def explain(self, predictor, x, *, rng_key=None):
        return Explanation.create(**self.parts(predictor, x))


class Nameless(Honest):
    def parts(self, predictor, x):
        return Honest.parts(self, predictor, x) | {"schema": None}


class TakesAnything(Honest):
    def explain(self, predictor, x, *, rng_key=None):
        return Honest.explain(self, PREDICTOR, x)


class TakesBadPoints(Honest):
    def explain(self, predictor, x, *, rng_key=None):
        return Honest.explain(self, predictor, np.nan_to_num(np.asarray(x)))


class NaNLeaf(Honest):
    note: jax.Array = eqx.field(default_factory=lambda: jnp.array(jnp.nan))


class Doubling(Honest):
    def __init__(self, reference=(0.2, -0.4)):
        self.reference = 2.0 * jnp.asarray(reference)


PLANTED = {
    "derives_from_the_abstract_class": (NotAnExplainer, "does not derive from AbstractExplainer"),
    "declares_what_it_needs": (Vague, "`requires` must be one of .* got 'a model'"),
    "returns_an_explanation": (Array, "`explain` returns ArrayImpl"),
    "predictions_are_the_predictors": (OtherPredictions, "predictions: differ by"),
    "explains_functions_with_draws": (
        AveragesDraws,
        "of a function with draws .* have \\(chain, draw\\) \\(None, None\\)",
    ),
    "additive": (MissesTheBase, "base value plus contributions miss the prediction"),
    "instances_are_independent": (Centered, "differ by"),
    "same_key_same_explanation": (Random, "two explanations with one key differ"),
    "records_how_it_was_made": (Anonymous, "the attributes name no explainer"),
    "takes_feature_names_from_a_data_frame": (Nameless, "the features are called"),
    "refuses_a_wrong_predictor": (TakesAnything, "a predictor that is a string is accepted"),
    "refuses_bad_points": (TakesBadPoints, "`x` with NaN is accepted"),
    "survives_the_round_trip_as_a_pytree": (NaNLeaf, "a leaf of the pytree differs"),
    "survives_the_round_trip_through_a_spec": (Doubling, "differ by"),
}


def test_every_check_has_a_planted_violation():
    assert set(PLANTED) == set(CHECKS)


@pytest.mark.slow
def test_honest_explainer_passes():
    check_explainer(Honest(), PREDICTOR, X)


@pytest.mark.slow
def test_groups_must_hold_every_feature():
    check_explainer(Grouped(), PREDICTOR, X)
    with pytest.raises(AssertionError, match="the values have sizes .*'feature': 1.*'feature': 2"):
        CHECKS["returns_an_explanation"](Grouped(columns=(1,)), PREDICTOR, X)
    with pytest.raises(AssertionError, match="the features are called"):
        CHECKS["takes_feature_names_from_a_data_frame"](Grouped(columns=(1, 1)), PREDICTOR, X)


def test_additivity_is_asked_only_of_additive_explainers():
    class NotAdditive(MissesTheBase):
        additive: ClassVar = False

    CHECKS["additive"](NotAdditive(), PREDICTOR, X)


@pytest.mark.parametrize("name", CHECKS)
def test_planted_violation_is_caught(name, register):
    broken, message = PLANTED[name]
    if name == "survives_the_round_trip_through_a_spec":
        register("explainers", "doubling", broken)
    with pytest.raises(AssertionError, match=message):
        CHECKS[name](broken(), PREDICTOR, X)
