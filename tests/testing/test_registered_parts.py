"""The conformance checks, on everything that is registered."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import jax
import pytest

from kpp import registry, testing
from kpp.kernels import RBF
from kpp.testing import cases, parametrize_with_checks

# Parts that take many seconds to compile: models and inferences but for one, embeddings of all coalitions, the value
# functions of preferences. The slow suite checks them.
SLOW = {
    *(set(registry.models()) - {"GPRegression"}),
    *(set(registry.inferences()) - {"MAP"}),
    *(name for name in registry.value_functions() if name.startswith("observational")),
    *("preferential-items", "preferential-context"),
}
# Kernels that solve a system for each value: the slow suite checks their derivatives, and runs them without `jit`,
# where each of their many operations is a program of its own. The nightly suite does so for those of other kernels.
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

# The check of one example, by kind.
CHECKS = {kind: getattr(testing, f"check_{kind.removesuffix('s')}") for kind in registry.KINDS}


def quick(classes):
    return {name: cls for name, cls in classes.items() if name not in SLOW}


def marked(case):
    marks = []
    if case.check.__name__ in COSTLY:
        marks = [pytest.mark.slow] * (case.name in SOLVING) + [pytest.mark.nightly] * (case.name in COMPOSED)
    return pytest.param(case, id=str(case), marks=marks)


# The default suite checks the first example of each class, the slow and the nightly suite the others.


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


@parametrize_with_checks(quick(registry.inferences()), num_examples=1)
def test_inferences(check):
    check()


@parametrize_with_checks(registry.commands())
def test_commands(check):
    check()


OTHERS = [
    (kind, name, cls)
    for kind in registry.KINDS
    for name, cls in (CONVERTERS if kind == "converters" else getattr(registry, kind)()).items()
]

# Their further examples compile for more than 2.5 seconds; the first ones are checked above.
LONG = (
    "explainers-cxplain explainers-gpec explainers-integrated-gradients explainers-kernel-shap "
    "explainers-pref-shap explainers-rkhs-shap kernels-HilbertSpace kernels-Matern kernels-Product "
    "kernels-Projected models-BaggGP models-BayesIME models-BayesIMP models-CentroidGP models-CMP "
    "models-ColliderRegression models-ColliderRidge models-GeneralizedGP models-GPClassification models-GPGP "
    "models-GPRegression models-IME models-IMP models-KernelLogistic models-KernelRidge models-MultiLatentGP "
    "models-PGP models-PreferenceGP models-PreferenceLogistic models-PreferenceRidge models-RankingGP "
    "models-SamplingEffect models-VBagg value_functions-baseline value_functions-causal "
    "value_functions-causal-embedding value_functions-interventional value_functions-observational "
    "value_functions-observational-copula value_functions-observational-masked "
    "value_functions-preferential-items"
).split()


@pytest.mark.nightly_variants(*LONG)
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name", "cls"), [pytest.param(*each, id="-".join(each[:2])) for each in OTHERS])
def test_other_examples(kind, name, cls):
    """All examples of the parts in SLOW, and all but the first of the others; one process builds and fits each once."""
    skipped = 0 if name in SLOW else 1
    examples = [*cls.examples(jax.random.key(0))][skipped:]
    if not examples:
        pytest.skip("the default suite checks its only example")
    for example in examples:
        CHECKS[kind](*example)


def test_cases_need_a_class_of_kpp():
    with pytest.raises(TypeError, match="`classes` must derive from one of AbstractKernel, .*AbstractEmbedding, .*int"):
        cases([int])


@pytest.mark.parametrize("argument", [{"num_examples": 0}, {"skip_examples": -1}])
def test_numbers_of_examples_are_checked(argument):
    with pytest.raises(ValueError, match=f"`{next(iter(argument))}`"):
        cases(registry.kernels(), **argument)


def test_two_suites_share_the_examples():
    """Each example is checked by one of two suites, of which the second leaves out what the first checks."""

    def checked(**numbers):
        seen = []
        check = cases([RBF], **numbers)[0]
        replace(check, check=lambda *example: seen.append(repr(example)))()
        return seen

    assert checked(num_examples=1) + checked(skip_examples=1) == checked()
    assert checked(num_examples=1, skip_examples=1) == checked()[1:2] != []


def test_cases_are_called_after_class_and_law():
    names = [str(case) for case in cases(registry.kernels())]
    assert "RBF-symmetric" in names
    assert len(set(names)) == len(names)
