"""Which converter is asked: that of the library that a model's class, or one of its base classes, comes from."""

from __future__ import annotations

import subprocess
import sys
import types

import jax
import numpy as np
import pytest

import kpp
from kpp import registry
from kpp.kernels import RBF

FUNCTION = kpp.RKHSFunction(RBF(1.0), np.zeros((2, 1)), np.array([1.0, 2.0]))


def library(name):
    """A class `Model` of a library of this name."""
    return type("Model", (), {"__module__": f"{name}.models", "value": FUNCTION})


class Base(kpp.AbstractConverter):
    """Converts what has a value, and says who it is in its refusals."""

    def gp_posterior(self, model):
        return kpp.GPPosterior(self.rkhs_function(model), np.zeros((2, 1)))

    def rkhs_function(self, model):
        value = model[0].value if isinstance(model, tuple) else model.value
        if isinstance(value, Exception):
            raise value
        return value


class Derived(Base):
    """Knows no class at all."""

    def rkhs_function(self, model):
        raise TypeError("of derived, nothing is known")


@pytest.fixture
def converters(monkeypatch):
    """Register converters of made-up libraries."""

    def register(**classes):
        monkeypatch.setattr(registry, "converters", lambda: classes)

    return register


def test_a_model_is_converted_by_the_library_of_its_class(converters):
    converters(base=Base, derived=Derived)
    assert kpp.as_rkhs_function(library("base")()) is FUNCTION
    assert kpp.as_gp_posterior(library("base")()).mean is FUNCTION


def test_the_libraries_of_base_classes_are_asked_in_their_order(converters):
    converters(base=Base, derived=Derived)
    model = type("Model", (library("base"),), {"__module__": "derived.models"})
    assert kpp.as_rkhs_function(model()) is FUNCTION  # derived is asked first, and does not know it
    converters(base=Derived, derived=Base)
    assert kpp.as_rkhs_function(model()) is FUNCTION
    own = type("Own", (model,), {"__module__": "mine"})
    assert kpp.as_rkhs_function(own()) is FUNCTION


def test_a_part_that_is_not_exact_ends_the_search(converters):
    converters(base=Base, derived=Base)
    model = type("Model", (library("base"),), {"__module__": "derived.models", "value": ValueError("the part")})
    with pytest.raises(ValueError, match="the part"):
        kpp.as_rkhs_function(model())


def test_the_message_says_what_all_asked_libraries_say(converters):
    converters(base=Base, derived=Derived)
    model = type("Model", (library("base"),), {"__module__": "derived.models", "value": TypeError("of base, no")})
    with pytest.raises(TypeError, match="of derived, nothing is known; of base, no"):
        kpp.as_rkhs_function(model())


def test_a_model_and_its_data_are_given_as_a_pair(converters):
    converters(base=Base)
    pair = (library("base")(), np.ones(3))
    assert kpp.as_rkhs_function(pair) is FUNCTION
    assert kpp.as_gp_posterior(pair).mean is FUNCTION


@pytest.mark.parametrize("thing", [3, (), (3, 4), lambda x: x, library("base"), types.SimpleNamespace()])
def test_other_things_name_the_libraries_that_are_known(converters, thing):
    converters(base=Base, derived=Derived)
    for convert in (kpp.as_rkhs_function, kpp.as_gp_posterior):
        with pytest.raises(TypeError, match="`predictor` must be a kpp.Fit, .* model of base, derived; got"):
            convert(thing)


@pytest.mark.slow
def test_models_of_foreign_libraries_are_explained(converters):
    converters(base=Base)
    x = np.array([[0.5], [1.0]])
    options = {"background": np.zeros((2, 1)), "covariance": "point", "progress": False}
    explanation = kpp.explain(library("base")(), x, **options)
    np.testing.assert_allclose(explanation.predictions, FUNCTION(x))
    # one feature: the only value is f(x) - f(0), of variance 2 - 2 k(x, 0) under the prior, which no data reduce
    expected = 2 - 2 * np.asarray(RBF(1.0)(x, np.zeros((1, 1))))[:, 0]
    np.testing.assert_allclose(explanation.covariance.values[:, 0, 0], expected, rtol=1e-10)
    sampled = kpp.explain(
        library("base")(), x, explainer="kernel-shap", background=np.zeros((2, 1)), rng_key=jax.random.key(0)
    )
    np.testing.assert_allclose(sampled.predictions, FUNCTION(x))


def test_a_model_that_can_be_called_is_explained_without_conversion_if_there_is_none(converters):
    converters(base=Base)
    members = {"__module__": "base.models", "value": ValueError("the part"), "__call__": lambda self, x: x[:, 0] ** 2}
    model, x, background = type("Model", (), members)(), np.array([[0.5], [1.0]]), np.zeros((2, 1))
    options = {"explainer": "kernel-shap", "background": background, "rng_key": jax.random.key(0)}
    np.testing.assert_allclose(kpp.explain(model, x, **options).predictions, [0.25, 1.0])
    with pytest.raises(ValueError, match="the part"):
        kpp.explain(model, x, background=background)


@pytest.mark.slow  # a process of its own
def test_registering_converters_imports_no_foreign_library():
    script = "import sys; from kpp import registry; registry.converters(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"sklearn", "torch", "gpytorch", "botorch", "gpjax", "tinygp"} & set(loaded)
