"""Arguments of a wrong kind: every public function and method refuses them by a message that names the argument."""

from __future__ import annotations

import importlib
import inspect
import os
import pickle
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from jaxtyping import Array, Float

import kpp
import kpp_models
from kpp.causal import CausalDAG
from kpp.causal.graph.nodes import MixedGraph
from kpp.foundation.arguments import check_arguments, guard_exports, handed_out
from kpp.kernels import RBF, AbstractKernel
from kpp.runtime.files import expand_user
from kpp.typing import AnyArray, Numbers, Points

THING = object()
RAGGED = [[1.0], [2.0, 3.0]]
DEEP: list[object] = []
for _ in range(200):
    DEEP = [DEEP]
GRAPH = CausalDAG([("x", "y")])


def takes(
    path: str | os.PathLike[str] = "",
    folder: Path | None = None,
    graph: MixedGraph = GRAPH,
    dag: CausalDAG | None = None,
    names: Sequence[str] = (),
    some: str | Collection[str] | None = None,
    edges: Iterable[tuple[str, str]] = (),
    call: Callable[..., float] = len,
    options: Mapping[str, float] | None = None,
    rows: tuple[int, ...] = (),
    number: int | None = None,
    share: float = 0.5,
    flag: bool = True,
    kernel: AbstractKernel | None = None,
    x: Points = 0,
    y: Numbers = 0,
    z: Float[AnyArray, "n d"] | None = None,
    frame: pd.DataFrame | None = None,
    anything: object = None,
) -> None:
    """Take an argument of each kind."""


RIGHT = {
    "path": ["a", Path("a")],
    "folder": [Path("a"), None],
    "graph": [GRAPH],
    "dag": [GRAPH, None],
    "names": [["a"], ("a", "b"), pd.Index(["a"]), np.array(["a"]), []],
    "some": ["a", {"a"}, ["a"], None],
    "edges": [[("a", "b")], iter([("a", "b")]), {("a", "b")}],
    "call": [len, lambda x: 1.0, RBF()],
    "options": [{}, {"a": 1.0}, None],
    "rows": [(1, 2), [1, 2], np.array([1])],
    "number": [1, np.int64(3), np.array(3), None],
    "share": [0.5, 1, np.float32(0.1), jnp.asarray(0.2)],
    "flag": [True, np.bool_(False)],
    "kernel": [RBF(), None],
    "x": [np.zeros((2, 3)), jnp.zeros(3), [[1.0, 2.0]], (np.zeros(2), np.zeros((2, 1))), pd.DataFrame({"a": [1.0]})],
    "y": [1.0, 2, [1.0, 2.0], np.zeros(3), pd.Series([1.0]), ["a", "b"]],
    "z": [np.zeros((2, 3)), [[1.0]], None],
    "frame": [pd.DataFrame({"a": [1.0]}), xr.Dataset({"a": ("row", [1.0])}), None],
    "anything": [THING, None, 3],
}
WRONG = {
    "path": [3, None, THING, ["a"]],
    "folder": ["a", 3, THING],
    "graph": ["x -> y", None, 3, [("x", "y")]],
    "dag": ["x -> y", 3, THING],
    "names": ["abc", 3, None, [1, 2], RAGGED, THING],
    "some": [3, [1], RAGGED, THING],
    "edges": ["ab", 3, None, THING],
    "call": ["len", 3, None, THING],
    "options": [[("a", 1.0)], "a", 3, THING],
    "rows": [3, "12", None, THING, RAGGED, [1.5]],
    "number": [1.5, "1", True, np.array([1, 2]), 2**63, THING],
    "share": ["0.5", None, True, 10**400, float("nan"), 1j, THING],
    "flag": ["yes", 1, None, THING],
    "kernel": ["rbf", RBF, 3, THING],
    "x": ["text", None, THING, 3.0, RAGGED, DEEP, {}],
    "y": ["text", None, THING, RAGGED, DEEP, {}],
    "z": ["text", THING, RAGGED, {"a": 1}],
    "frame": [np.zeros((2, 2)), {"a": [1.0]}, "a.csv"],
    "anything": [],
}


@pytest.mark.parametrize("name", RIGHT)
def test_values_of_the_kind_are_accepted(name):
    for value in RIGHT[name]:
        check_arguments(takes)(**{name: value})


@pytest.mark.parametrize("name", WRONG)
def test_values_of_another_kind_are_refused_by_name(name):
    for value in WRONG[name]:
        with pytest.raises((TypeError, ValueError), match=rf"^`{name}` must be .*, got "):
            check_arguments(takes)(**{name: value})


def test_arguments_by_position_are_checked_and_traced_ones_are_trusted():
    with pytest.raises(TypeError, match="`graph` must be a causal graph, got NoneType"):
        check_arguments(takes)("path", None, None)

    @check_arguments
    def double(n: int, y: Float[Array, " n"]) -> Array:
        return n * y

    assert jax.jit(double)(2, jnp.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_an_iterator_is_left_to_the_function():
    read = check_arguments(lambda names: list(names))
    read.__wrapped__.__annotations__["names"] = "Iterable[str]"
    assert read(iter("ab")) == ["a", "b"]


def test_a_checked_function_keeps_its_name_signature_and_pickle():
    assert kpp.causal.identify.__module__ == "kpp.causal.identification.identify"
    assert list(inspect.signature(kpp.causal.identify).parameters)[:3] == ["graph", "treatment", "outcome"]
    for function in (kpp.causal.identify, kpp_models.contrast):
        assert pickle.loads(pickle.dumps(function)) is function
    before = kpp.causal.identify
    guard_exports(vars(kpp.causal))
    assert kpp.causal.identify is before


class Given:
    """What users get from a function, and never name."""

    def take(self, number: int) -> int:
        return number


def give(number: int) -> Given:
    return Given()


def test_what_a_function_returns_checks_its_arguments_too():
    namespace = {"__name__": __name__, "__all__": ["give"], "give": give}
    guard_exports(namespace)
    with pytest.raises(ValueError, match="`number` must be an integer, got 'a'"):
        namespace["give"](1).take("a")


PACKAGES = ["api", "runtime.cache", "calibration", "causal", "conversion", "data.bags", "data.estimators"]
PACKAGES += ["data.tables", "embeddings", "explanations", "features", "functions", "games", "gp", "inference"]
PACKAGES += ["kernels", "linalg", "metrics", "networks", "numpyro_models", "numpyro_models.pointwise", "plots"]
PACKAGES += ["functionals", "inspection", "preferences", "priors", "testing"]
PACKAGES += [f"{package}.toolkit" for package in ("causal", "explanations", "games", "gp", "inference", "kernels")]
PACKAGES = [f"kpp.{name}" for name in PACKAGES]
PACKAGES += ["kpp_models", "kpp_models.aggregates.grids", "kpp_models.estimators", "kpp_converters", "kpp_gpec"]
PACKAGES += ["kpp_optimization", "kpp_pref_shap", "kpp_rkhs_shap", "kpp_structures", "kpp_study", "kpp_surrogates"]
PACKAGES += ["kpp_areal"]


def public_functions(module):
    """Yield the functions and methods that a package hands out, with their names."""
    for name in handed_out(vars(module)):
        value = getattr(module, name)
        if str(getattr(value, "__module__", "")).partition(".")[0] != module.__name__.partition(".")[0]:
            continue
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value):
            for method, function in vars(value).items():
                function = getattr(function, "__func__", function)
                if inspect.isfunction(function) and not method.startswith("_"):
                    yield f"{name}.{method}", function


CHECKED = {"bool", "int", "float", "str", "CausalDAG", "MixedGraph"}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_function_refuses_wrong_kinds_by_the_name_of_the_argument(package):
    """Only the wrong argument is given: it is refused before Python misses the others."""
    wrong = []
    for where, function in public_functions(importlib.import_module(package)):
        for name, parameter in inspect.signature(function).parameters.items():
            first = str(parameter.annotation).partition(" ")[0]  # of several types
            for value in [THING, RAGGED] if first in CHECKED else []:
                try:
                    function(**{name: value})
                    wrong.append(f"{where}({name}={value!r}) is accepted")
                except (TypeError, ValueError) as error:
                    if not str(error).startswith(f"`{name}` must be"):
                        wrong.append(f"{where}({name}={value!r}): {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("value", [3, None, THING])
def test_what_is_read_as_a_graph_is_refused_by_name(value):
    with pytest.raises(TypeError, match="`graph` must be a causal graph or a text or edges, got "):
        kpp.causal.as_graph(value)


def test_a_home_of_nobody_is_a_path_that_is_not_found():
    assert expand_user(Path("~/a.csv")) == Path.home() / "a.csv"
    assert expand_user(Path("~no-such-user/a.csv")) == Path("~no-such-user/a.csv")
