"""The conformance checks, on everything that is registered."""

from __future__ import annotations

import pytest

from kpp import registry
from kpp.testing import cases, parametrize_with_checks


@parametrize_with_checks(registry.kernels())
def test_kernels(check):
    check()


@parametrize_with_checks(registry.embeddings())
def test_embeddings(check):
    check()


@parametrize_with_checks(registry.value_functions())
def test_value_functions(check):
    check()


@parametrize_with_checks(registry.explainers())
def test_explainers(check):
    check()


# These share their conditioning with CMP, whose checks are always run, or among themselves.
LONG = {"BaggGP", "CentroidGP", "VBagg", "IME", "IMP", "BayesIME", "BayesIMP", "SamplingEffect"}


@parametrize_with_checks({name: cls for name, cls in registry.models().items() if name not in LONG})
def test_models(check):
    check()


@pytest.mark.slow
@parametrize_with_checks({name: cls for name, cls in registry.models().items() if name in LONG})
def test_long_models(check):
    check()


def test_cases_need_a_class_of_kpp():
    with pytest.raises(TypeError, match="`classes` must derive from one of AbstractKernel, AbstractEmbedding, .*int"):
        cases([int])


def test_cases_are_called_after_class_and_law():
    names = [str(case) for case in cases(registry.kernels())]
    assert "RBF-symmetric" in names
    assert len(set(names)) == len(names)
