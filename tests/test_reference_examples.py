"""The examples of the reference print what they say: those of docstrings, and those of docs/reference/examples."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import kpp
from kpp import registry

ROOT = Path(__file__).resolve().parents[1]
# The names that users call most, by the pages and examples that use them.
IN_DOCSTRINGS = """
kpp.Bags kpp.Explanation kpp.Fit kpp.MAP kpp.RKHSFunction kpp.as_gp_posterior kpp.causal.CausalDAG kpp.causal.identify
kpp.curve kpp.data.standardize kpp.embeddings.MeanEmbedding kpp.explain kpp.features.landmarks kpp.games.Interventional
kpp.games.Observational kpp.kernels.Categorical kpp.kernels.Linear kpp.kernels.RBF kpp.preferences.Matches kpp.sample
kpp_models.GPRegression kpp_models.estimators.GPRegressor kpp_surrogates.KernelSHAP
""".split()


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_examples", ROOT / "docs" / "reference_examples.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their own module up
    spec.loader.exec_module(module)
    return module


reference = _load()
GROUPS = [
    pytest.param(group, id=f"{group.file}: {group.title}", marks=[pytest.mark.slow] if group.is_slow else [])
    for group in reference.groups()
]


def run(code: str, names: dict[str, object], title: str) -> dict[str, object]:
    """Run code with the names that it may use, and return all names after it; fail if it prints anything else."""
    test = doctest.DocTestParser().get_doctest(code, names, title, None, 0)
    said: list[str] = []
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    result = doctest.DocTestRunner(optionflags=options, verbose=False).run(test, out=said.append, clear_globs=False)
    assert result.attempted > 0 and result.failed == 0, "".join(said)
    return test.globs


def thing(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


@pytest.fixture(scope="module")
def before() -> dict[str, object]:
    """What the code before the examples of docstrings defines."""
    return run(reference.before_docstrings(), {}, "before the docstrings")


@pytest.mark.slow_variants(
    "kpp.Explanation",
    "kpp.MAP",
    "kpp.curve",
    "kpp.features.landmarks",
    "kpp.games.Interventional",
    "kpp.games.Observational",
    "kpp_models.estimators.GPRegressor",
    "kpp.Fit",
)
@pytest.mark.parametrize("name", IN_DOCSTRINGS)
def test_the_example_of_a_docstring_prints_what_it_says(name: str, before: dict[str, object]):
    run(inspect.getdoc(thing(name)), before, name)


@pytest.mark.slow_variants(
    "kpp.embeddings: Distributions in an RKHS",
    "kpp.kernels: Kernels",
    "kpp.kernels: Kernels of pairs",
    "kpp: A Gaussian process of 20 rows",
    "kpp: Twenty rows, without a model",
)
@pytest.mark.nightly_variants(
    "kpp.preferences: slow: Five items, of which the larger wins", "slow: slow: Inference with priors"
)
@pytest.mark.parametrize("group", GROUPS)
def test_the_examples_of_a_group_print_what_they_say(group):
    names = run(group.setup, {}, group.title)
    for name, code in group.examples.items():
        run(code or inspect.getdoc(thing(name)), names, name)


def test_an_example_belongs_to_one_name():
    listed = [name for group in reference.groups() for name in group.examples]
    assert len(listed) == len(set(listed)) > 100
    assert not set(listed) & set(IN_DOCSTRINGS)
    assert all(thing(name) is not None for name in listed)
    in_docstrings = [name for group in reference.groups() for name, code in group.examples.items() if not code]
    assert len(in_docstrings) + len(IN_DOCSTRINGS) >= 150


def test_an_example_is_short():
    for code in (code for group in reference.groups() for code in group.examples.values() if code):
        lines = [line for line in code.splitlines() if line.startswith((">>>", "..."))]
        assert 1 <= len(lines) <= 8
        assert max(map(len, lines)) <= 94  # what fits beside the side bars, with the prompt


def test_help_names_every_option_of_an_explainer_or_a_value_function():
    """`background`, `groups` and `progress`, which most take, are named once."""
    text = " ".join(kpp.explain.__doc__.split())
    for classes in (registry.explainers(), registry.value_functions()):
        for name, cls in classes.items():
            fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
            own = [each for each in fields if each not in {"value_function", "background", "groups", "progress"}]
            said = re.search(rf'"{name}" takes (.*?)[;.] ', text)
            words = [] if said is None else said[1].split(", ")
            assert sorted(word.rstrip("*") for word in words) == sorted(own), name
            required = {each for each in own if is_required(fields[each])}
            assert {word[:-1] for word in words if word.endswith("*")} == required, name


def is_required(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
