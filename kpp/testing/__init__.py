"""Conformance checks: small named checks of the laws of kernels, embeddings, value functions, explainers, models, ...

kpp's own tests run them over all registered classes. A plugin runs them in its tests in the same way::

    from kpp.testing import parametrize_with_checks

    @parametrize_with_checks([MyKernel, MyExplainer])
    def test_conformance(check):
        check()

The examples to check come from the classmethod `examples` of each class. `check_kernel(kernel, x)` and the similar
functions check one example of your own, and raise an AssertionError that names all laws that do not hold.
"""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.testing.suite import Case as Case
from kpp.testing.suite import cases as cases
from kpp.testing.suite import check_command as check_command
from kpp.testing.suite import check_converter as check_converter
from kpp.testing.suite import check_embedding as check_embedding
from kpp.testing.suite import check_explainer as check_explainer
from kpp.testing.suite import check_functional as check_functional
from kpp.testing.suite import check_inference as check_inference
from kpp.testing.suite import check_kernel as check_kernel
from kpp.testing.suite import check_model as check_model
from kpp.testing.suite import check_value_function as check_value_function
from kpp.testing.suite import parametrize_with_checks as parametrize_with_checks

_guard_exports(globals())
