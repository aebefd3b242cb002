"""The conformance checks, on everything that is registered."""

from __future__ import annotations

import importlib.util

import pytest

from kpp import registry
from kpp.testing import cases, parametrize_with_checks

# Parts that take many seconds to compile: models but for one, embeddings of all coalitions, the value functions of
# preferences. The slow suite checks them.
SLOW = {
    *(set(registry.models()) - {"GPRegression"}),
    *(name for name in registry.value_functions() if name.startswith("observational")),
    *("preferential-items", "preferential-context"),
}
# Kernels that solve a system for each value: the slow suite checks their derivatives, and runs them without `jit`,
# where each of their many operations is a program of its own.
SOLVING = {"Nystrom", "Projected", "RestrictedShapleyRegularized", "ShapleyRegularized"}
COSTLY = {
    "gradients_are_finite_at_zero_distance",
    "gradients_are_finite_differences",
    "jit_changes_nothing",
    "adds_and_multiplies",
    "vmap_over_kernels",
}
# Made of other kernels, which are checked: what takes long to compile for a whole follows from its parts.
COMPOSED = {
    *("BagMean", "Contextual", "GeneralizedPreferential", "GeneralizedPreferentialFeatures", "PairProduct"),
    *("Preferential", "PreferentialFeatures", "Product", "ProductKernel", "Scaled", "Selected", "SkewSymmetrized"),
    "Sum",
}


def quick(classes):
    return {name: cls for name, cls in classes.items() if name not in SLOW}


def marked(case):
    is_slow = case.name in SOLVING | COMPOSED and case.check.__name__ in COSTLY
    return pytest.param(case, id=str(case), marks=[pytest.mark.slow] if is_slow else [])


# The default suite checks the first example of each class, the slow suite all examples.


@pytest.mark.parametrize("check", [marked(case) for case in cases(registry.kernels(), num_examples=1)])
def test_kernels(check):
    check()


@parametrize_with_checks(registry.embeddings(), num_examples=1)
def test_embeddings(check):
    check()


@parametrize_with_checks(quick(registry.value_functions()), num_examples=1)
def test_value_functions(check):
    check()


@parametrize_with_checks(registry.explainers(), num_examples=1)
def test_explainers(check):
    check()


@parametrize_with_checks(quick(registry.models()), num_examples=1)
def test_models(check):
    check()


# A converter can be checked where its library is installed; it is registered under the name of its module.
CONVERTERS = {name: cls for name, cls in registry.converters().items() if importlib.util.find_spec(name)}


@parametrize_with_checks(CONVERTERS, num_examples=1)
def test_converters(check):
    check()


@parametrize_with_checks({"MAP": registry.inferences()["MAP"]}, num_examples=1)
def test_inferences(check):
    check()


@pytest.mark.slow
@parametrize_with_checks(CONVERTERS)
def test_all_examples_of_converters(check):
    check()


@pytest.mark.slow
@parametrize_with_checks(registry.inferences())
def test_all_examples_of_inferences(check):
    check()


@pytest.mark.slow
@parametrize_with_checks(registry.kernels())
def test_all_examples_of_kernels(check):
    check()


@pytest.mark.slow
@parametrize_with_checks(registry.embeddings())
def test_all_examples_of_embeddings(check):
    check()


@pytest.mark.slow
@parametrize_with_checks(registry.value_functions())
def test_all_examples_of_value_functions(check):
    check()


@pytest.mark.slow
@parametrize_with_checks(registry.explainers())
def test_all_examples_of_explainers(check):
    check()


@pytest.mark.slow
@parametrize_with_checks(registry.models())
def test_all_examples_of_models(check):
    check()


def test_cases_need_a_class_of_kpp():
    with pytest.raises(TypeError, match="`classes` must derive from one of AbstractKernel, AbstractEmbedding, .*int"):
        cases([int])


def test_cases_check_at_least_one_example():
    with pytest.raises(ValueError, match="`num_examples`"):
        cases(registry.kernels(), num_examples=0)


def test_cases_are_called_after_class_and_law():
    names = [str(case) for case in cases(registry.kernels())]
    assert "RBF-symmetric" in names
    assert len(set(names)) == len(names)
