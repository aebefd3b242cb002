"""Bad input at every public entry point: each case is refused by a message that names the argument.

The cases are made from the registry: each field of each registered class and each argument of its methods gets values
that are wrong for its type, so a new kernel, embedding, value function, explainer or model is tested without a line
here. What is not registered is listed in `data_entries` and `fit_entries`. `pytest -s` prints how many cases have each
outcome. Further values in the same places are in `test_refusals` and `test_non_finite`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import pytest

import kpp
import kpp_models
import kpp_optimization
from kpp import registry
from kpp.data import tables
from kpp.foundation.modules import AbstractModule
from kpp.kernels import RBF
from kpp.preferences import Matches

KEY = jax.random.key(0)
NAN, INF = float("nan"), float("inf")
THING = object()

CLEAR, OBSCURE, SILENT, ACCEPTED = "clear error", "obscure error", "silent NaN", "accepted"


class BadCase(NamedTuple):
    """One call with one wrong argument."""

    entry: str
    argument: str
    value: Any
    call: Callable[[], Any]

    def __str__(self) -> str:
        return f"{self.entry}: `{self.argument}` = {shown(self.value)}"


def shown(value):
    if isinstance(value, np.ndarray) or hasattr(value, "columns"):
        return f"{type(value).__name__} {value.shape} {np.asarray(value).ravel()[:3].tolist()}"
    return value.__name__ if inspect.isclass(value) else repr(value)[:40]


def outcome(case: BadCase) -> tuple[str, str]:
    """Run a case; return the class of its outcome, and what came."""
    try:
        result = case.call()
    except Exception as error:  # whatever the library lets through is an outcome
        message = f"{type(error).__name__}: {error}"
        # Where annotated types are checked at every call, that check names the parameter.
        checked = "Type-check error" in message or "TypeCheckError" in message
        named = any(f"`{name}`" in message for name in case.argument.split("|"))
        return CLEAR if checked or (named and isinstance(error, (TypeError, ValueError))) else OBSCURE, message
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(result) if isinstance(leaf, (jax.Array, np.ndarray))]
    nan = any(leaf.dtype.kind == "f" and np.isnan(leaf).any() for leaf in leaves)
    return SILENT if nan else ACCEPTED, type(result).__name__


# Values that are wrong for each kind of field.
KERNELS = ["rkhs-shap", 3.0, RBF, [RBF()], THING]
COUNTS = [-1, 1.5, "3", True, NAN, 2**60]
WRONG = {
    "kernel": KERNELS,
    "kernels": ["RBF", 3.0, (), (1.0,), ("RBF",)],
    "count": COUNTS,
    "seed": [1.5, "3", NAN, True],
    "bool": ["yes", 2, None, NAN],
    "choice": ["no-such-name", 3, True],
    "positive": ["1", NAN, -1.0, INF, 1j, {}],
    "length": ["1", NAN, -1.0, 0.0, 1j],
    "nonnegative": ["1", NAN, -1.0, INF, 1j],
    "number": ["1", NAN, 1j, THING],
    "points": [np.full((3, 2), NAN), np.array([["a", "b"]]), np.array(3.0), np.zeros((3, 2), complex), "text"],
    "array": [np.full((3, 2), NAN), np.array([["a", "b"]]), "text"],
    "object": ["no-such-name", 3.0, THING],
    "features": [3.5, (1.5,), (None,)],
    "forms of groups": [3, "text", ["a"]],
    "groups": [3, "text", ["a"], {"a": []}, {"a": ["no such"]}, {"a": [99]}, {"a": [0], "b": [0]}],
}
#: Leaves that may be negative, infinite or 0.
ANY_SIGN = {"mean", "offset", "level", "center", "coefficients", "intercept", "loadings"}
MAY_BE_INFINITE = {"lengthscale", "period"}
MAY_BE_ZERO = {"high_resolution_variance", "operator_variance", "offset", "min_noise_variance", "correlation"}


def kind_of(field, value) -> str | None:
    """Return which values are wrong for a field of a registered class: by its annotation, and by its value."""
    annotation = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
    if field.name == "groups":  # the members are checked where the columns are known
        return "forms of groups"
    if field.name == "categorical":
        return "features"
    if re.search(r"tuple\[Abstract\w*Kernel", annotation) and "| tuple" not in annotation:
        return "kernels"
    if re.match(r"Abstract\w*Kernel", annotation):
        return "kernel"
    if field.name in ("points", "treatment", "background", "landmarks", "inducing_points", "frequencies"):
        return "points"
    if "Array" in annotation or "Points" in annotation or "PyTree" in annotation:
        return "array"
    if re.match(r"(Abstract|Bags|Likelihood|Preferential|tuple\[(kpp|CausalLink))", annotation):
        return "object"
    if annotation.startswith("tuple[int | str"):
        return "features"
    if annotation in ("int", "int | None"):
        return "seed" if field.name == "seed" else "count"
    if annotation == "bool":
        return "bool"
    if annotation in ("str", "str | None"):
        return "choice"
    if annotation.startswith("float") or annotation.startswith("Leaf") or annotation == "Any":
        if field.name in ANY_SIGN:
            return "number"
        if annotation != "Any" or isinstance(value, (jax.Array, float)) or kpp.priors.is_prior(value):
            if field.name in MAY_BE_INFINITE:
                return "length"
            return "nonnegative" if field.name in MAY_BE_ZERO else "positive"
    return None


@functools.cache
def example(kind: str, name: str) -> tuple[Any, ...]:
    """Return the first example of a registered class."""
    return tuple(next(iter(registry.get(kind, name).examples(KEY))))


def fields(where: str, instance: Any) -> Iterator[BadCase]:
    """Yield cases for each field of the class of an instance."""
    for field in dataclasses.fields(instance):
        wrong = kind_of(field, getattr(instance, field.name)) if field.init else None
        for value in WRONG.get(wrong, []):
            change = functools.partial(dataclasses.replace, instance, **{field.name: value})
            yield BadCase(where, field.name, value, change)


def entry(name: str, argument: str, call: Callable[[Any], Any], values: list[Any]) -> Iterator[BadCase]:
    """Yield cases for one argument of a function."""
    for value in values:
        yield BadCase(name, argument, value, functools.partial(call, value))


#: Points that no entry takes.
NO_POINTS = ["text", None, THING, 3.0, np.array([["a", "b"]])]


def bad_points(x: Any) -> list[Any]:
    """Return what is wrong in place of a table of points (n, d)."""
    if not isinstance(x, (jax.Array, np.ndarray)):
        return NO_POINTS[:3]
    x = np.asarray(x)
    spoiled, infinite = np.array(x, float), np.array(x, float)
    spoiled.flat[0], infinite.flat[-1] = NAN, INF
    text = np.array(x).astype(str).astype(object)
    return [*NO_POINTS, spoiled, infinite, text, x + 1j, x.ravel(), x[:0], np.ma.masked_array(x, mask=x == x.flat[0])]


def bad_batches(x: Any) -> list[Any]:
    """Return what is wrong in place of a batch of points, which may be empty."""
    return [value for value in bad_points(x) if value is not None and not (np.ndim(value) > 1 and len(value) == 0)]


def bad_targets(y: Any) -> list[Any]:
    """Return what is wrong in place of n targets."""
    y = np.asarray(y, float)
    spoiled = y.copy()
    spoiled[0] = NAN
    return [spoiled, y[:-1], y[:, None], y + 1j, np.array(["a"] * len(y)), "text", 3.0, y[:0]]


def methods(kind: str, name: str) -> Iterator[BadCase]:
    """Yield cases for the arguments of the methods of a registered class."""
    first, *rest = example(kind, name)
    where = f"{kind} {name}"
    if kind == "kernels":
        bad = bad_batches(rest[0])
        yield from entry(f"{where}.gram", "x", first.gram, bad)
        yield from entry(f"{where}.__call__", "x1|x", lambda x: first(x, rest[0]), bad)
        yield from entry(f"{where}.diagonal", "x", first.diagonal, bad)
    if kind == "embeddings" and rest[0] is not None:
        yield from entry(f"{where}.weights", "query", first.weights, bad_batches(rest[0]))
    if kind == "value_functions":
        function, x = rest
        columns = np.shape(jax.tree.leaves(x)[0])[-1]
        coalitions = np.ones((2, columns), bool)
        yield from entry(f"{where}.__call__", "x", lambda x: first(function, x, coalitions), bad_points(x))
        wrong = [coalitions.astype(float), coalitions[0], coalitions[:, :-1], "text", None, [[0, 5]]]
        yield from entry(f"{where}.__call__", "coalitions", lambda value: first(function, x, value), wrong)
        yield from entry(f"{where}.__call__", "function", lambda value: first(value, x, coalitions), [3.0, "text"])
    if kind == "explainers":
        predictor, x = rest
        explain = functools.partial(first.explain, rng_key=KEY)
        yield from entry(f"{where}.explain", "x", lambda x: explain(predictor, x), bad_points(x))
        yield from entry(f"{where}.explain", "predictor", lambda value: explain(value, x), [3.0, "text", None, THING])
        for value in WRONG["groups"][3:]:
            change = functools.partial(dataclasses.replace, first, groups=value) if hasattr(first, "groups") else None
            if change is not None:
                call = functools.partial(lambda change: change().explain(predictor, x, rng_key=KEY), change)
                yield BadCase(f"{where}.explain", "groups", value, call)
        named = functools.partial(kpp.explain, predictor, x, explainer=name)
        yield BadCase(f"kpp.explain {name}", "no_such_option", 1, functools.partial(named, no_such_option=1))
        yield from entry(f"kpp.explain {name}", "rng_key", lambda key: named(rng_key=key), [0, "text"])
    if kind == "inferences":
        model, data = rest
        yield from entry(f"{where}.run", "rng_key", lambda key: first.run(key, model, data), [0, None, "text"])
    if kind == "models":
        x, y = rest
        yield from entry(f"{where}.prepare", "x|y", lambda x: first.prepare(x, y), bad_points(x))
        yield from entry(f"{where}.prepare", "y", lambda y: first.prepare(x, y), bad_targets(y))
        yield from entry(f"{where}.fit", "rng_key", lambda key: first.fit(key, x, y), [0, None, "text"])
        fit = functools.partial(first.fit, KEY, x, y)
        yield from entry(f"{where}.fit", "inference", lambda value: fit(inference=value), ["nuts", 3, kpp.MAP, THING])
        yield from entry(f"{where}.fit", "num_prior_samples", lambda value: fit(num_prior_samples=value), COUNTS[:5])


POINTS = np.linspace(-1.0, 1.0, 12).reshape(6, 2)
FRAME = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "x"]})
SPOILED = np.where(np.arange(12).reshape(6, 2) == 3, NAN, POINTS)
LABELS = np.array([0, 0, 1, 1, 2, 2])
GAME = pd.DataFrame({"winner": ["p", "q"], "loser": ["q", "r"]})
ITEMS = pd.DataFrame({"ID": ["p", "q", "r"], "size": [1.0, 2.0, 3.0]})
CLICKS = pd.DataFrame({"session": [1, 1], "ID": ["p", "q"], "clicked": [1, 0]})
MISSING = ITEMS.assign(size=[1.0, NAN, 2.0])
NO_LABELS = [np.array([0.0, 1.0, NAN, 0.0, 1.0, 1.0]), LABELS[:-1], LABELS[:, None], "text", 3]
NO_VECTOR = [np.full(3, NAN), np.zeros((3, 1)), "text", np.zeros(2), np.array(["a", "b", "c"])]
NO_NUMBERS = [np.array([0.0, 1.0]), np.array([0, 9]), np.array([-1, 0]), "text", np.array([[0, 1]]), np.array([0, NAN])]


def other_entries() -> Iterator[BadCase]:
    """Yield cases for what is not registered."""
    yield from data_entries()
    yield from fit_entries()
    yield from function_entries()
    for cls in constructible():
        yield from fields(cls.__name__, cls())


def constructible() -> list[type]:
    """Return the final classes of kpp that are constructed without arguments, such as inference methods."""
    found, waiting = set(), [AbstractModule]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        registered = any(cls in getattr(registry, kind)().values() for kind in registry.KINDS)
        if cls.__name__.startswith(("Abstract", "_")) or registered or not cls.__module__.startswith("kpp"):
            continue
        if all(
            field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
            for field in dataclasses.fields(cls)
            if field.init
        ):
            found.add(cls)
    return sorted(found, key=lambda cls: cls.__name__)


def data_entries() -> Iterator[BadCase]:
    """Yield cases for bags, matches and tables."""
    bags = kpp.Bags.create(POINTS, LABELS, POINTS[:3, :1])
    create = kpp.Bags.create
    yield from entry("Bags.create", "points", lambda value: create(value, LABELS), bad_points(POINTS))
    yield from entry("Bags.create", "bag", lambda value: create(POINTS, value), NO_LABELS)
    bad = [np.full((3, 1), NAN), np.zeros((2, 1)), "text", np.zeros(3), np.zeros((5, 1))]
    yield from entry("Bags.create", "covariates|bag", lambda value: create(POINTS, LABELS, value), bad)
    named = functools.partial(create, POINTS, LABELS, POINTS[:3, :1])
    bad = [np.array([0, 0, 1]), np.array([0, 1]), "text", np.array([0.0, NAN, 1.0])]
    yield from entry("Bags.create", "covariate_bag", lambda value: named(covariate_bag=value), bad)
    yield from fields("Bags", bags)
    yield from entry("Bags.take", "bags", bags.take, [99, [99], [-1], [0, 0], [], [0.5], "text", None])
    yield from entry("Bags.subsample", "num", lambda value: bags.subsample(KEY, value), [0, *COUNTS])
    yield from entry("Bags.subsample", "rng_key", lambda value: bags.subsample(value, 1), [0, "text"])
    yield from entry("Bags.means", "values", bags.means, [np.full(6, NAN), np.zeros(5), 3.0, "text"])
    yield from entry("Bags.spread", "weights", bags.spread, [np.full(3, NAN), np.zeros(5), 3.0, "text"])
    first, second = np.array([0, 1]), np.array([1, 2])
    matches = Matches.create(POINTS, first, second)
    yield from fields("Matches", matches)
    yield from entry("Matches.create", "items", lambda value: Matches.create(value, first, second), bad_points(POINTS))
    yield from entry("Matches.create", "first", lambda value: Matches.create(POINTS, value, second), NO_NUMBERS)
    yield from entry("Matches.create", "second", lambda value: Matches.create(POINTS, first, value), NO_NUMBERS)
    labeled = functools.partial(Matches.create, POINTS, first, second)
    bad = [np.array([NAN, 1.0]), np.array([2, 0]), "text", np.zeros(3), np.array(["a", "b"])]
    yield from entry("Matches.create", "y", labeled, bad)
    bad = ["text", np.full((2, 1), NAN), np.zeros(2), np.zeros((5, 1)), THING]
    yield from entry("Matches.create", "contexts", lambda value: labeled(contexts=value), bad)
    yield from entry("Matches.create", "tie", lambda value: labeled(np.array([1, 0]), tie=value), [1, "text", NAN])
    counted = functools.partial(Matches.from_counts, POINTS, first, second)
    ones = np.ones(2)
    for name, place in (("wins", 0), ("losses", 1), ("ties", 2)):
        call = functools.partial(lambda place, bad: counted(*(bad if j == place else ones for j in range(3))), place)
        bad = [np.array([NAN, 1.0]), np.array([0.5, 1.0]), np.array([-1.0, 1.0]), "text", np.ones(3)]
        yield from entry("Matches.from_counts", name, call, bad)
    tables_of = Matches.from_tables
    yield from entry(
        "Matches.from_tables", "items", lambda value: tables_of(value, GAME), [MISSING, "text", GAME, None]
    )
    yield from entry("Matches.from_tables", "matches", lambda value: tables_of(ITEMS, value), ["text", ITEMS, None])
    for name, argument in (("winner", "matches"), ("loser", "matches"), ("item", "items"), ("tie", "matches")):
        call = functools.partial(lambda name, value: tables_of(ITEMS, GAME, **{name: value}), name)
        yield from entry("Matches.from_tables", f"{name}|{argument}", call, ["no such column", 3])
    call = lambda value: tables_of(ITEMS, GAME, features=value)  # noqa: E731
    yield from entry("Matches.from_tables", "features|items", call, ["size", ["no such"], []])
    sessions = Matches.from_sessions
    yield from entry("Matches.from_sessions", "views", lambda value: sessions(ITEMS, value), ["text", GAME, None])
    for name in ("session", "clicked", "item"):
        call = functools.partial(lambda name, value: sessions(ITEMS, CLICKS, **{name: value}), name)
        yield from entry("Matches.from_sessions", f"{name}|views|items", call, ["no such column", 3])
    yield from entry(
        "Matches.split", "train_fraction", lambda value: matches.split(KEY, value), ["1", NAN, -1.0, 2.0, None]
    )
    yield from entry("Matches.split", "by", lambda value: matches.split(KEY, 0.5, by=value), ["no such", 3])
    yield from entry("Matches.split", "rng_key", lambda value: matches.split(value, 0.5), [0, None])
    yield from entry("tables.read_points", "x", tables.read_points, bad_points(POINTS))
    yield from entry("tables.standardize", "x", tables.standardize, [*bad_points(POINTS), MISSING])
    call = lambda value: tables.standardize(FRAME, categorical=value)  # noqa: E731
    yield from entry("tables.standardize", "categorical", call, [["no such"], "a", 3])
    _, scales = tables.standardize(FRAME)
    bad = ["text", None, POINTS[:, :1], FRAME[["b"]], FRAME.assign(a=NAN), FRAME.assign(a="1")]
    yield from entry("Scales.apply", "x", scales.apply, bad)
    read = functools.partial(tables.read_points, POINTS)
    yield from entry("tables.read_points", "feature_names", lambda v: read(feature_names=v), [["a"], ["a", "a"]])
    _, schema = tables.read_points(FRAME)
    bad = [*bad_points(POINTS), POINTS, FRAME[["a"]], FRAME.assign(b="z"), FRAME.assign(a=NAN), FRAME.assign(a="1")]
    yield from entry("Schema.read", "x", schema.read, bad)


def fit_entries() -> Iterator[BadCase]:
    """Yield cases for fits, functions, explanations and kernels that are combined."""
    x, y = POINTS, np.array([0.1, 0.4, -0.2, 0.3, 0.9, -0.5])
    model = registry.get("models", "KernelRidge")(RBF(1.0), 0.1)
    fit = model.fit(KEY, x, y, inference=kpp.MAP(progress=False), num_prior_samples=0)
    yield from entry("Fit.predict", "x", fit.predict, bad_points(x))
    yield from entry("Fit.predict", "unseen", lambda value: fit.predict(x, unseen=value), ["no such", 3, None])
    yield from entry("Fit.predict", "batch_size", lambda value: fit.predict(x, batch_size=value), [0, *COUNTS[:5]])
    draw = fit.sample_predictive
    yield from entry("Fit.sample_predictive", "x", lambda value: draw(KEY, value, 2), bad_points(x))
    yield from entry("Fit.sample_predictive", "num_samples", lambda value: draw(KEY, x, value), [0, *COUNTS[:5]])
    yield from entry("Fit.sample_predictive", "rng_key", lambda value: draw(value, x, 2), [0, None])
    yield from entry("Fit.sample", "num_samples", lambda value: fit.sample(KEY, value), [0, *COUNTS[:5]])
    function = fit.function()
    yield from entry("RKHSFunction.__call__", "x", function, [None, *bad_batches(x)])
    build = kpp.RKHSFunction
    yield from entry("RKHSFunction", "kernel", lambda value: build(value, x, y), KERNELS)
    yield from entry("RKHSFunction", "points", lambda value: build(RBF(), value, y), bad_points(x))
    yield from entry(
        "RKHSFunction", "coefficients", lambda value: build(RBF(), x, value), [*bad_targets(y)[:2], *bad_targets(y)[3:]]
    )
    bad = [NAN, "text", None, 1j]
    yield from entry("RKHSFunction", "intercept", lambda value: build(RBF(), x, y, value), bad)
    curve = functools.partial(kpp.curve, fit, x, "x0")
    yield from entry("kpp.curve", "x", lambda value: kpp.curve(fit, value, "x0"), bad_points(x))
    yield from entry("kpp.curve", "feature", lambda value: kpp.curve(fit, x, value), ["no such", 3, None])
    yield from entry("kpp.curve", "kind", lambda value: curve(kind=value), ["no such", 3, None])
    yield from entry(
        "kpp.curve", "grid", lambda value: curve(grid=value), [1, NAN, "text", [2.0, 1.0], [0.0, NAN], (3, [1.0])]
    )
    explain = functools.partial(kpp.explain, fit, x)
    yield from entry("kpp.explain", "x", lambda value: kpp.explain(fit, value), bad_points(x))
    yield from entry("kpp.explain", "explainer", lambda value: explain(explainer=value), ["no such", 3, None, RBF])
    bad = ["no such", 3, RBF(), "RBF"]
    yield from entry("kpp.explain", "value_function", lambda value: explain(value_function=value), bad)
    bad = [value for value in bad_points(x) if value is not None]
    yield from entry("kpp.explain", "background", lambda value: explain(background=value), bad)
    yield from entry("kpp.explain", "groups", lambda value: explain(groups=value), WRONG["groups"])
    measure = functools.partial(kpp.explanations.compare, {"one": explain(covariance=None)}, fit)
    yield from entry("compare", "background", measure, [None, *bad])
    for name in ("num_coalitions", "neighbors"):
        yield from entry("compare", name, lambda v, name=name: measure(x, **{name: v}), [0, *COUNTS[:5]])
    inspect_fit = functools.partial(kpp.sensitivity, fit, x)
    bad = [*bad_points(x), x[:1]]
    yield from entry("kpp.sensitivity", "x", lambda value: kpp.sensitivity(fit, value), bad)
    yield from entry(
        "kpp.sensitivity", "predictor", lambda value: kpp.sensitivity(value, x), [3.0, "text", None, THING]
    )
    bad = ["no such", 3, RBF(), "causal"]
    yield from entry("kpp.sensitivity", "value_function", lambda value: inspect_fit(value_function=value), bad)
    yield from entry("kpp.sensitivity", "groups", lambda value: inspect_fit(groups=value), WRONG["groups"])
    yield from entry("kpp.sensitivity", "relative", lambda value: inspect_fit(relative=value), WRONG["bool"])
    yield from entry("kpp.sensitivity", "num_draws", lambda value: inspect_fit(num_draws=value), [0, *COUNTS])
    yield from entry("kpp.sensitivity", "num_rows", lambda value: inspect_fit(num_rows=value), [0, *COUNTS])
    yield from entry("kpp.sensitivity", "rng_key", lambda value: inspect_fit(rng_key=value), [0, "text"])
    estimate = functools.partial(kpp.games.estimate_shapley, kpp.games.Baseline(), function)
    yield from entry("games.estimate_shapley", "x", estimate, bad_points(x))
    yield from entry("games.estimate_shapley", "groups", lambda value: estimate(x, groups=value), WRONG["groups"])
    yield from entry("games.estimate_shapley", "method", lambda value: estimate(x, method=value), WRONG["choice"])
    for name in ("num_coalitions", "batch_size"):
        call = functools.partial(lambda name, value: estimate(x, **{name: value}), name)
        yield from entry("games.estimate_shapley", name, call, [0, *COUNTS[:5]])
    bad = [0.0, -1.0, NAN, INF, "small", True]
    yield from entry("games.estimate_shapley", "tolerance", lambda value: estimate(x, tolerance=value), bad)
    error = functools.partial(kpp.games.value_error, kpp.games.Interventional(x), function)
    yield from entry("games.value_error", "x", error, bad_points(x))
    yield from entry("games.value_error", "groups", lambda value: error(x, groups=value), WRONG["groups"])
    yield from entry("games.value_error", "weights", lambda value: error(x, weights=value), WRONG["choice"])
    yield from entry(
        "games.value_error", "num_coalitions", lambda value: error(x, num_coalitions=value), [0, *COUNTS[:5]]
    )
    yield from entry("features.landmarks", "x|points", lambda value: kpp.features.landmarks(value, 2), bad_points(x))
    yield from entry("features.landmarks", "num", lambda value: kpp.features.landmarks(x, value), [0, 99, *COUNTS[:5]])
    yield from entry("kernels.median_heuristic", "x", kpp.kernels.median_heuristic, bad_points(x)[:-1])
    yield from entry("kernels.default_kernel", "schema", kpp.kernels.default_kernel, ["text", FRAME, None])
    kernel = RBF()
    yield from entry("kernel.on", "features", kernel.on, [3.5, (), (1.5,), -1, None, (0, 0)])
    yield from entry("kernel.__mul__", "variance|other", lambda value: kernel * value, [NAN, -1.0, INF, 1j])


Y = np.array([0.1, 0.4, -0.2, 0.3, 0.9, -0.5])
WINS = np.array([[0.0, 0.4, -0.3, 0.1], [-0.4, 0.0, 0.2, 0.3], [0.3, -0.2, 0.0, 0.2], [-0.1, -0.3, -0.2, 0.0]])
GRAPH = kpp.causal.CausalDAG([("Z", "X"), ("X", "M"), ("M", "Y"), ("Z", "Y")])
EFFECT = {"graph": GRAPH, "treatment": "X", "outcome": "Y"}
SETS = {"graph": GRAPH, "x": "X", "y": "Y"}
RULE = {"graph": GRAPH, "y": "Y", "x": "X", "z": "Z"}
TABLE = pd.DataFrame({"a": Y, "b": Y[::-1], "c": POINTS[:, 0]})

#: Arguments that are right, for each public function of these modules that takes a user's data.
FUNCTIONS: dict[Any, dict[str, dict[str, Any]]] = {
    kpp.metrics: {
        "crps_from_draws": {"y": Y, "draws": np.stack([Y, Y + 1.0])},
        "expected_calibration_error": {"labels": Y > 0, "probabilities": np.full(6, 0.5)},
        "gaussian_crps": {"y": Y, "mean": Y, "scale": np.ones(6)},
        "gaussian_log_score": {"y": Y, "mean": Y, "scale": np.ones(6)},
        "interval_coverage": {"y": Y, "lower": Y - 1.0, "upper": Y + 1.0},
        "interval_score": {"y": Y, "lower": Y - 1.0, "upper": Y + 1.0, "probability": 0.9},
        "projection_gain": {"values": Y, "expectations": Y / 2, "baseline": 0.0},
        "structural_similarity": {"x": np.ones((12, 12)), "y": np.ones((12, 12)), "data_range": 1.0},
    },
    kpp.causal: {
        **{name: EFFECT for name in ("adjustment_sets", "causal_nodes", "find_adjustment", "forbidden_nodes")},
        **{name: EFFECT for name in ("frontdoor_set", "frontdoor_sets", "identify", "instruments")},
        **{name: EFFECT for name in ("minimal_adjustment_sets", "minimal_frontdoor_set", "optimal_adjustment_set")},
        "proper_backdoor_graph": EFFECT,
        "is_adjustment_set": EFFECT | {"adjusting": "Z"},
        "is_backdoor_set": EFFECT | {"adjusting": "Z"},
        "is_frontdoor_set": EFFECT | {"mediators": "M"},
        "is_instrument": EFFECT | {"instrument": "Z"},
        **{name: {"graph": GRAPH, "outcome": "Y"} for name in ("collider_independences", "collider_partition")},
        "strongest_independences": {"graph": GRAPH, "outcome": "Y"},
        **{name: SETS for name in ("d_connecting_path", "d_separated", "minimal_separator")},
        "is_minimal_separator": SETS | {"given": ["M", "Z"]},
        "directed_path": {"graph": GRAPH, "source": "X", "target": "Y"},
        "reachable": {"graph": GRAPH, "x": "X"},
        **{name: RULE for name in ("exchange_action", "insert_action", "insert_observation")},
    },
    kpp.embeddings: {
        "two_sample_test": {"rng_key": KEY, "kernel": RBF(), "first": POINTS, "second": POINTS + 1.0},
        "mean_independence_test": {"rng_key": KEY, "y": Y, "x": POINTS, "given": POINTS[:, :1]},
        "independence_test": {
            "rng_key": KEY,
            "frame": TABLE,
            "independence": kpp.causal.Independence("a", ("b",), ("c",)),
        },
    },
    kpp_optimization: {
        "expected_best_utility": {"rng_key": KEY, "utilities": np.stack([Y, Y[::-1]])},
        "expected_improvement": {"mean": Y, "standard_deviation": np.ones(6), "best": 0.0},
        "thompson_duel": {"rng_key": KEY, "utilities": np.stack([Y, Y[::-1]])},
        "replicate": {"rng_key": KEY, "run": lambda key, number: number, "num_replications": 1},
    },
    kpp.calibration: {
        "rank_statistics": {"values": Y[:2], "draws": np.stack([Y[:3], Y[3:]])},
        "uniformity_test": {"ranks": np.array([0, 1, 2, 3]), "num_draws": 3},
    },
    kpp_models: {
        "choose_num_clusters": {"rng_key": KEY, "preference_matrix": WINS},
        "clustering_accuracy": {"labels": LABELS, "truth": LABELS},
        "comparable_clusters": {"rng_key": KEY, "preference_matrix": WINS, "num_clusters": 2},
        "count_cycles": {"preferences": WINS},
        "mean_clustering_coefficient": {"adjacency": WINS > 0.0},
        "rank_items": {"preferences": np.stack([WINS, 2 * WINS])},
        "spectral_rankability": {"adjacency": WINS > 0.0},
    },
}


#: Arrays that need not have as many rows as others, labels that may be text, and messages that name another argument.
FREE_LENGTH = {"first", "second", "utilities", "ranks", "preferences"}
MAY_BE_TEXT = {"labels", "truth"}
NAMED_WITH = {"y": "y|draws", "values": "values|draws|expectations"}


def wrong_values(name: str, annotation: str, value: Any) -> list[Any]:
    """Return values that are wrong for an argument: by its annotation, and by a value that is right."""
    if "RngKey" in annotation:
        return [0, "text"]
    if annotation in ("CausalDAG", "MixedGraph"):
        return ["text", None, 3]
    if annotation.startswith("Nodes"):
        return ["no such node", 3, ["no such node"], [["X"]], THING]
    if annotation.startswith("AbstractKernel"):
        return KERNELS
    if annotation.startswith("int"):
        return COUNTS[:5]
    if annotation == "float":
        return ["1", NAN, 1j, None]
    if annotation == "bool":
        return WRONG["bool"]
    if annotation == "str":
        return WRONG["choice"]
    if annotation in ("Numbers", "ArrayLike", "Numbers | None") and np.ndim(value):
        value = np.asarray(value)
        spoiled = np.array(value, float)
        spoiled.flat[0] = NAN
        wrong = [spoiled, "text", value + 1j, THING]
        if name not in FREE_LENGTH:
            wrong += [value[:-1], np.zeros((2,) * (value.ndim + 3))]
        return wrong if name in MAY_BE_TEXT else [*wrong, value.astype(str)]
    if annotation.startswith(("pd.DataFrame", "Independence", "Callable")):
        return ["text", None, 3]
    return []


def function_entries() -> Iterator[BadCase]:
    """Yield cases for each argument of public functions."""
    for module, functions in FUNCTIONS.items():
        for name, right in functions.items():
            door = module if hasattr(module, name) else importlib.import_module(f"{module.__name__}.toolkit")
            function = getattr(door, name)
            for argument, parameter in inspect.signature(function).parameters.items():
                for value in wrong_values(argument, str(parameter.annotation), right.get(argument)):
                    # Iterators do their work when they are read.
                    call = lambda f=function, k={**right, argument: value}: run_to_the_end(f(**k))  # noqa: E731
                    yield BadCase(f"{module.__name__}.{name}", NAMED_WITH.get(argument, argument), value, call)


def run_to_the_end(result: Any) -> Any:
    return list(result) if isinstance(result, Iterator) else result


def cases() -> Iterator[BadCase]:
    """Yield all cases; each holds a call that is made later."""
    for kind in registry.KINDS:
        for name in getattr(registry, kind)():
            if kind == "converters":
                continue  # they have no fields; tests/conversion/test_refused.py has models that they refuse
            yield from fields(f"{kind} {name}", example(kind, name)[0])
            yield from methods(kind, name)
    yield from other_entries()


@pytest.mark.slow
def test_bad_input_is_refused_by_a_message_that_names_the_argument():
    counts, wrong = Counter(), []
    for case in cases():
        found, what = outcome(case)
        counts[found] += 1
        if found != CLEAR:
            wrong.append(f"{found}: {case} -> {what}")
    print(f"\n{sum(counts.values())} bad inputs: " + ", ".join(f"{number} {found}" for found, number in counts.items()))
    assert not wrong, "\n".join([str(dict(counts)), *wrong])
    assert sum(counts.values()) >= 400
