"""The conformance checks, on everything that is registered."""

from __future__ import annotations

import pytest

from kpp import registry
from kpp.testing import cases, parametrize_with_checks

# What takes many seconds to compile is checked in the slow suite: models but for one, embeddings of all coalitions,
# kernels that solve a system for every value, those that compare two items or bags, and GPEC.
SLOW = {
    *(set(registry.models()) - {"GPRegression"}),
    *(name for name in registry.value_functions() if name.startswith("observational")),
    *("preferential-items", "preferential-context", "pref-shap"),
    *("Nystrom", "Projected", "RestrictedShapleyRegularized", "ShapleyRegularized"),
    *("BagMean", "Contextual", "GeneralizedPreferential", "GeneralizedPreferentialFeatures"),
    *("WeightedExponentialGeodesic", "gpec"),
    *("PairProduct", "Preferential", "PreferentialFeatures", "SkewSymmetrized"),
}


def quick(classes):
    return {name: cls for name, cls in classes.items() if name not in SLOW}


def slow(classes):
    return {name: cls for name, cls in classes.items() if name in SLOW}


@parametrize_with_checks(quick(registry.kernels()))
def test_kernels(check):
    check()


@pytest.mark.slow
@parametrize_with_checks(slow(registry.kernels()))
def test_slow_kernels(check):
    check()


@parametrize_with_checks(registry.embeddings())
def test_embeddings(check):
    check()


@parametrize_with_checks(quick(registry.value_functions()))
def test_value_functions(check):
    check()


@pytest.mark.slow
@parametrize_with_checks(slow(registry.value_functions()))
def test_slow_value_functions(check):
    check()


@parametrize_with_checks(quick(registry.explainers()))
def test_explainers(check):
    check()


@pytest.mark.slow
@parametrize_with_checks(slow(registry.explainers()))
def test_slow_explainers(check):
    check()


@parametrize_with_checks(quick(registry.models()))
def test_models(check):
    check()


@pytest.mark.slow
@parametrize_with_checks(slow(registry.models()))
def test_slow_models(check):
    check()


def test_cases_need_a_class_of_kpp():
    with pytest.raises(TypeError, match="`classes` must derive from one of AbstractKernel, AbstractEmbedding, .*int"):
        cases([int])


def test_cases_are_called_after_class_and_law():
    names = [str(case) for case in cases(registry.kernels())]
    assert "RBF-symmetric" in names
    assert len(set(names)) == len(names)
