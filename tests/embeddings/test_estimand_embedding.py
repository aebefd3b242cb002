"""Embeddings of identified effects: exact in discrete laws, near in Gaussian ones, equal to back and front door."""

from __future__ import annotations

import functools
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from kpp.causal import CausalDAG, NotCoveredError, NotIdentifiableError, find_adjustment, identify
from kpp.causal.toolkit import gaussian_precision
from kpp.embeddings import EstimandEmbedding, InterventionalMeanEmbedding, interventional_quantiles
from kpp.kernels import RBF
from kpp.testing import check_embedding
from oracles import discrete_laws as oracle
from oracles.kernels import rbf

#: The effect without regularization is extrapolated from three small values L, 2 L, 4 L. Its bias is of the order
#: (L / p)^3 for events of probability p, and rounding errors grow to 1e-16 / L, or 1e-16 / L^2 where one regression is
#: nested in another. The larger L are for those.
EXACT = 1e-8
SMALLEST = (1e-6, 1e-5, 1e-4)
#: The kernel 1{a = b} of whole numbers.
EQUAL = RBF(0.01)

FRONTDOOR = CausalDAG([("x", "m"), ("m", "y")], bidirected=[("x", "y")])
FRONTDOOR_COVARIATE = CausalDAG([("x", "m"), ("m", "y"), ("z", "x"), ("z", "m"), ("z", "y")], bidirected=[("x", "y")])
NAPKIN = CausalDAG([("w", "r"), ("r", "x"), ("x", "y")], bidirected=[("w", "x"), ("w", "y")])
BACKDOOR = CausalDAG([("z", "x"), ("z", "y"), ("x", "y")])
# Effects for which some way of the estimator is needed that most random graphs do not need.
SPECIAL = {
    "front door": (FRONTDOOR, "x", "y", ""),
    "mediator and outcome": (FRONTDOOR, "x", "my", ""),
    "front door with a covariate": (FRONTDOOR_COVARIATE, "x", "y", ""),
    "napkin": (NAPKIN, "x", "y", ""),
    "several treatments": (FRONTDOOR_COVARIATE, "xz", "y", ""),
    "Bayes' rule": (CausalDAG([("a", "c"), ("b", "d"), ("c", "d")], bidirected=[("a", "d")]), "ac", "b", "d"),
    # The condition of the fraction and its outcome are in the rows of two factors.
    "outcome elsewhere": (
        CausalDAG([("c", "d"), ("e", "a"), ("d", "a"), ("a", "b")], bidirected=[("c", "e"), ("a", "b")]),
        "d",
        "c",
        "b",
    ),
    # The conditions of the fraction are in the rows of two factors.
    "two conditions": (
        CausalDAG([("c", "a"), ("c", "d"), ("b", "d")], bidirected=[("c", "b"), ("b", "a")]),
        "b",
        "c",
        "ad",
    ),
    # The regressions have four indices in common, unless a factor takes a from the rows of a later one.
    "carried": (
        CausalDAG([("c", "d"), ("a", "d"), ("a", "b"), ("d", "b")], bidirected=[("c", "e"), ("c", "a"), ("e", "b")]),
        "c",
        "b",
        "e",
    ),
    # The law of the fraction depends on a variable that is summed over.
    "a fraction for each row": (
        CausalDAG(
            [
                ("c", "b"),
                ("c", "d"),
                ("a", "e"),
                ("a", "f"),
                ("a", "d"),
                ("e", "b"),
                ("e", "f"),
                ("b", "f"),
                ("f", "d"),
            ],
            bidirected=[("c", "e"), ("c", "f"), ("a", "e")],
        ),
        "b",
        "f",
        "",
    ),
}


def as_graph(spec: oracle.Spec) -> CausalDAG:
    nodes, edges, bidirected, latent = spec
    return CausalDAG(edges, nodes=nodes, bidirected=bidirected, latent=latent)


def as_spec(graph: CausalDAG) -> oracle.Spec:
    hidden = sorted(tuple(sorted(pair)) for pair in graph.bidirected)
    return tuple(graph.nodes), list(graph.edges), hidden, sorted(graph.latent)


def embedded_effect(graph: CausalDAG, law: xr.DataArray, treatment, outcome, given, smallest) -> xr.DataArray:
    """The effect in a discrete law by an embedding: the rows are all values, weighted by their probabilities."""
    rows = law.rename("probability").to_dataframe().reset_index()
    weights = rows.pop("probability").to_numpy()
    kernels = dict.fromkeys(identify(graph, treatment=treatment, outcome=outcome, given=given).variables, EQUAL)
    embedding = EstimandEmbedding.from_graph(
        graph, rows, treatment, outcome, given=given, regularization=1.0, kernel=EQUAL, kernels=kernels
    ).with_row_weights(weights)
    conditions = [law[name].values for name in (*treatment, *given)]
    query = np.array(list(itertools.product(*conditions)), dtype=float)
    found = [with_regularization(embedding, factor * smallest).weights(query) for factor in (1, 2, 4)]
    limit = np.asarray(8 * found[0] - 6 * found[1] + found[2]) / 3
    dims = [*outcome, *treatment, *given]
    effect = xr.DataArray(np.zeros([law.sizes[dim] for dim in dims]), dims=dims)
    flat = effect.values.reshape(*(law.sizes[dim] for dim in outcome), -1)
    np.add.at(flat, tuple(rows[list(outcome)].to_numpy().T), limit)
    return effect


def with_regularization(embedding: EstimandEmbedding, value: float) -> EstimandEmbedding:
    parts = embedding.sample.regressions
    changed = tuple(eqx.tree_at(lambda part: part.regularization, part, np.asarray(value)) for part in parts)
    return eqx.tree_at(lambda tree: tree.sample.regressions, embedding, changed)


def check_exact(graph: CausalDAG, law: xr.DataArray, treatment, outcome, given, expected: xr.DataArray) -> None:
    errors = []
    for smallest in SMALLEST:
        found = embedded_effect(graph, law, [*treatment], [*outcome], [*given], smallest)
        errors.append(float(np.abs(found - expected).max()))
        if errors[-1] < EXACT:
            return
    raise AssertionError(f"{graph}: P({outcome} | do({treatment}), {given}) has errors {errors}")


@functools.cache
def random_effects(seed: int, number: int, nodes: str, most_given: int = 2) -> list[tuple]:
    """Identified effects in random graphs with hidden variables, most of them with sums or fractions."""
    rng, found = np.random.default_rng(seed), []
    while len(found) < number:
        spec = oracle.random_graph(rng, nodes, int(rng.integers(0, 2)))
        names = [str(name) for name in rng.permutation(sorted(as_graph(spec).observed))]
        ends = np.cumsum([rng.integers(1, 3), rng.choice([1, 1, 2]), rng.integers(0, most_given + 1)])
        x, y, z = names[: ends[0]], names[ends[0] : ends[1]], names[ends[1] : ends[2]]
        if not y:
            continue
        try:
            estimand = identify(as_graph(spec), treatment=x, outcome=y, given=z)
        except NotIdentifiableError:
            continue
        if "sum" in estimand.text() or rng.random() < 0.01:
            found.append((spec, x, y, z, estimand))
    return found


def compare_exactly(seed: int, number: int, nodes: str, sizes=(2,), most_given: int = 2) -> dict[str, int]:
    """Compare embeddings with the evaluated estimands; count kinds of expressions and refused ones."""
    counts = {"fraction": 0, "sum": 0, "conditional": 0, "refused": 0}
    for place, (spec, x, y, z, estimand) in enumerate(random_effects(seed, number, nodes, most_given)):
        law = oracle.DiscreteModel(np.random.default_rng(place), spec, sizes=sizes).joint()
        try:
            check_exact(as_graph(spec), law, x, y, z, estimand.evaluate(law))
        except NotCoveredError as error:
            assert str(estimand) in str(error)
            counts["refused"] += 1
            continue
        text = estimand.text()
        counts["fraction" if "] / [" in text else "sum" if "sum" in text else "conditional"] += 1
    return counts


@pytest.mark.slow_variants(
    "front door",
    "mediator and outcome",
    "front door with a covariate",
    "several treatments",
    "a fraction for each row",
    "carried",
    "Bayes' rule",
    "napkin",
    "outcome elsewhere",
    "two conditions",
)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_effects_are_those_of_the_mutilated_model(name):
    graph, x, y, z = SPECIAL[name]
    model = oracle.DiscreteModel(np.random.default_rng(7), as_spec(graph), sizes=(2,))
    check_exact(graph, model.joint(), x, y, z, model.effect([*y], [*x], [*z]))


@pytest.mark.nightly
def test_random_effects_equal_their_estimands():
    counts = compare_exactly(1, 12, "abcdef")
    assert counts["fraction"] >= 5 and counts["sum"] >= 5


@pytest.mark.nightly
def test_levels_may_be_several():
    counts = compare_exactly(2, 7, "abcd", sizes=(2, 3))
    assert counts["fraction"] >= 3 and counts["sum"] >= 3


def from_y0(expression, dsl, law: xr.DataArray) -> xr.DataArray:
    """Evaluate an expression of y0 in a discrete law, node by node of its tree."""
    evaluate = functools.partial(from_y0, dsl=dsl, law=law)
    if isinstance(expression, dsl.Probability):
        children, parents = ([node.name for node in nodes] for nodes in (expression.children, expression.parents))
        joint = law.sum([node for node in law.dims if node not in {*children, *parents}])
        return joint / joint.sum(children)
    if isinstance(expression, dsl.Product):
        return math.prod(map(evaluate, expression.expressions))
    if isinstance(expression, dsl.Fraction):
        return evaluate(expression.numerator) / evaluate(expression.denominator)
    if isinstance(expression, dsl.Sum):
        return evaluate(expression.expression).sum([node.name for node in expression.ranges])
    assert isinstance(expression, dsl.One)
    return xr.DataArray(1.0)


@pytest.mark.slow
def test_estimands_of_another_library_have_the_same_value():
    """Without conditional effects, which y0 does not always identify.

    y0 0.2.11 takes P(y | x) for the effect in the napkin and its like, whose law has the constraint of a node that does
    not matter. So where it differs from this library, the mutilated model decides.
    """
    y0 = pytest.importorskip("y0.algorithm.identify", reason="a second opinion, where it is installed")
    dsl, graphs = pytest.importorskip("y0.dsl"), pytest.importorskip("y0.graph")
    counts = {"equal": 0, "y0 is wrong": 0, "y0 failed": 0}
    for place, (spec, x, y, _, estimand) in enumerate(random_effects(1, 250, "abcdef", 0)):
        model = oracle.DiscreteModel(np.random.default_rng(place), spec, sizes=(2,))
        law, truth = model.joint(), model.effect(y, x)
        projection = as_graph(spec).project()
        theirs = graphs.NxMixedGraph.from_str_edges(
            directed=list(projection.edges), undirected=[tuple(sorted(pair)) for pair in projection.bidirected]
        )
        try:
            found = y0.identify_outcomes(theirs, treatments={*map(dsl.Variable, x)}, outcomes={*map(dsl.Variable, y)})
        except (nx.NetworkXError, KeyError):
            counts["y0 failed"] += 1
            continue
        ours = estimand.evaluate(law).transpose(*truth.dims)
        np.testing.assert_allclose(ours, truth, rtol=0.0, atol=1e-12)
        value = from_y0(found, dsl, law).broadcast_like(truth)
        surplus = [dim for dim in value.dims if dim not in truth.dims]
        value = value.isel(dict.fromkeys(surplus, 0)).transpose(*truth.dims)
        counts["equal" if np.allclose(value, ours, rtol=0.0, atol=1e-12) else "y0 is wrong"] += 1
    print(counts)
    assert counts["equal"] >= 200


GRID = np.array([[-1.0], [0.0], [1.0]])


def gaussian_sample(graph: CausalDAG, n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, list[str]]:
    """Rows of a linear Gaussian model, its covariance, and the names of its observed nodes in this order."""
    edges, hidden = list(graph.edges), sorted(tuple(sorted(pair)) for pair in graph.bidirected)
    edges += [(f"u{place}", end) for place, pair in enumerate(hidden) for end in pair]
    full = nx.DiGraph(edges)
    order, total = list(nx.topological_sort(full)), {}
    for node in order:
        row = 0.6 * np.eye(len(order))[order.index(node)]
        total[node] = row + 0.6 * sum((total[cause] for cause in full.predecessors(node)), np.zeros(len(order)))
    names = sorted(graph.observed)
    mixing = np.stack([total[name] for name in names])
    rows = np.random.default_rng(seed).normal(size=(n, len(order))) @ mixing.T
    return pd.DataFrame(rows, columns=names), mixing @ mixing.T, names


@eqx.filter_jit
def both(found, expected):
    return [(one.weights(GRID), one.mmd_squared(expected, GRID, GRID)) for one in (found, expected)]


@pytest.mark.slow_variants("back door", "front door")
@pytest.mark.parametrize("graph", [BACKDOOR, FRONTDOOR], ids=["back door", "front door"])
def test_back_door_and_front_door_are_those_of_the_interventional_embedding(graph, tolerance):
    frame, _, _ = gaussian_sample(graph, 12, 0)
    kernels = {"x": RBF(1.3), "z": RBF(0.9), "m": RBF(0.8)}
    (adjusting,) = find_adjustment(graph, treatment="x", outcome="y").variables
    expected = InterventionalMeanEmbedding.from_graph(
        graph, frame, "x", "y", regularization=0.01, treatment_kernel=kernels["x"], adjusting_kernel=kernels[adjusting]
    )
    used = {name: kernels[name] for name in ("x", adjusting)}
    found = EstimandEmbedding.from_graph(graph, frame, "x", "y", regularization=0.01, kernels=used)
    found, expected = both(found, expected)
    np.testing.assert_allclose(found[0], expected[0], **tolerance())
    np.testing.assert_allclose(found[1], expected[1], atol=1e-9)


@pytest.mark.nightly
def test_errors_in_gaussian_laws_shrink():
    """The mean of the outcome is linear, with the coefficients of the estimand's quadratic form.

    From 60 to 600 rows the mean error over two samples has to fall by a third at least.
    """
    graph, x, y, z = SPECIAL["napkin"]
    _, covariance, names = gaussian_sample(graph, 1, 0)
    estimand = identify(graph, treatment=[*x], outcome=[*y], given=[*z])
    form = np.asarray(gaussian_precision(estimand.expression, jnp.asarray(covariance), names))
    at = [names.index(node) for node in [y, *x, *z]]
    slopes = -form[at[0], at[1:]] / form[at[0], at[0]]
    scales = np.sqrt(np.diag(covariance))[at]
    query = 0.7 * scales[1:] * np.array(list(itertools.product([-1, 0, 1], repeat=len(at) - 1)))
    errors = {}
    for n in (60, 600):
        for seed in range(2):
            frame, _, _ = gaussian_sample(graph, n, seed)
            embedding = EstimandEmbedding.from_graph(graph, frame, [*x], [*y], given=[*z])
            found = np.asarray(embedding.expectation(frame[y].to_numpy(), query))
            errors.setdefault(n, []).append(np.sqrt(np.mean((found - query @ slopes) ** 2)) / scales[0])
    assert np.mean(errors[600]) < 0.67 * np.mean(errors[60])
    assert np.mean(errors[600]) < 0.15


@pytest.fixture(scope="module")
def napkin():
    frame, _, _ = gaussian_sample(NAPKIN, 20, 1)
    return EstimandEmbedding.from_graph(NAPKIN, frame, "x", "y", regularization=0.01), frame


@pytest.mark.slow
def test_draws_are_expectations_from_halves_of_the_rows(napkin):
    embedding, frame = napkin
    values = frame["y"].to_numpy()
    draws = embedding.bootstrap(jax.random.key(0), values, GRID, num_draws=3)
    assert draws.dims == ("chain", "draw", "query") and draws.shape == (1, 3, 3)
    np.testing.assert_array_equal(draws["x"], GRID[:, 0])
    redrawn = eqx.filter_jit(lambda tree, some: tree.with_row_weights(some).expectation(values, GRID))
    for draw, key in zip(draws[0], jax.random.split(jax.random.key(0), 3), strict=True):
        half = np.isin(np.arange(20), jax.random.permutation(key, 20)[:10])  # weights 1 and 0
        np.testing.assert_allclose(draw, redrawn(embedding.with_iterations(3), half), rtol=1e-9)


@pytest.mark.slow
def test_extrapolated_draws_are_the_generalized_jackknife(napkin):
    embedding, frame = napkin
    values, every = frame["y"].to_numpy(), np.arange(20)
    draws = embedding.bootstrap(jax.random.key(0), values, GRID, num_draws=2, extrapolate=True)[0]
    compiled = eqx.filter_jit(
        lambda some: embedding.with_iterations(3).with_row_weights(some).expectation(values, GRID)
    )

    def estimate(rows):
        return np.asarray(compiled(np.isin(every, rows).astype(float)))

    keys = jax.random.split(jax.random.key(0), 2)
    halves, jackknives = [], []
    for key in keys:
        half = jax.random.permutation(key, every)[:10]
        quarters = [jax.random.permutation(inner, half)[:5] for inner in jax.random.split(key, 20)]
        halves.append(estimate(half))
        jackknives.append(2 * halves[-1] - np.mean([estimate(rows) for rows in quarters], axis=0))
    np.testing.assert_allclose(draws.mean("draw"), 2 * estimate(every) - np.mean(halves, axis=0), rtol=1e-8)
    np.testing.assert_allclose(draws[1] - draws[0], jackknives[1] - jackknives[0], rtol=1e-7, atol=1e-9)


@pytest.mark.slow_variants("1", "4")
@pytest.mark.parametrize("num_iterations", [1, 4])
def test_iterations_regress_what_is_left_of_the_outcome(num_iterations):
    """Each iteration adds the ridge regression of the residuals so far: iterated Tikhonov regularization."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"x": rng.normal(size=20), "y": rng.normal(size=20)})
    embedding = EstimandEmbedding.from_graph(
        CausalDAG([("x", "y")]), frame, "x", "y", regularization=0.01, kernels={"x": RBF(0.7)}
    )
    x = frame[["x"]].to_numpy()
    gram, cross = rbf(x, x, 0.7), rbf(GRID, x, 0.7)
    coefficients = np.zeros(20)
    for _ in range(num_iterations):
        residuals = frame["y"].to_numpy() - gram @ coefficients
        coefficients += np.linalg.solve(gram + 20 * 0.01 * np.eye(20), residuals)
    found = embedding.with_iterations(num_iterations).expectation(frame["y"].to_numpy(), GRID)
    np.testing.assert_allclose(found, cross @ coefficients, rtol=1e-9)


@pytest.mark.slow
def test_rows_with_more_weight_are_rows_that_occur_more_often(napkin):
    embedding, frame = napkin
    doubled = EstimandEmbedding.from_graph(NAPKIN, pd.concat([frame, frame[:5]]), "x", "y", regularization=0.01)
    doubled = eqx.tree_at(
        lambda tree: [part.kernels for part in tree.sample.regressions],
        doubled,
        [part.kernels for part in embedding.sample.regressions],
    )
    expected = np.array(doubled.weights(GRID))
    expected[:5] += expected[20:]
    weighted = embedding.with_row_weights([2.0] * 5 + [1.0] * 15)
    np.testing.assert_allclose(weighted.weights(GRID), expected[:20], rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_quantiles_increase_and_no_effect_is_constant(napkin):
    embedding, frame = napkin
    quantiles = np.asarray(interventional_quantiles(embedding, GRID, [0.2, 0.8]))
    assert (quantiles[:, 0] < quantiles[:, 1]).all()
    reverse = EstimandEmbedding.from_graph(BACKDOOR, frame.rename(columns={"w": "z"}), "y", "x", regularization=0.1)
    np.testing.assert_allclose(reverse.expectation(frame["x"].to_numpy(), GRID), frame["x"].mean(), rtol=1e-12)


def test_what_was_not_measured_is_hidden():
    frame, _, _ = gaussian_sample(FRONTDOOR_COVARIATE, 10, 0)
    with pytest.raises(NotIdentifiableError):
        EstimandEmbedding.from_graph(FRONTDOOR_COVARIATE, frame.drop(columns="m"), "x", "y", regularization=0.1)


def test_refusals_name_the_part_and_mistakes_the_argument(napkin):
    embedding, frame = napkin
    fork = CausalDAG([("x", "w"), ("x", "y")])
    with pytest.raises(
        NotCoveredError, match=r"P\(w, y \| do\(x\)\) = .*no single conditional law holds all of \['w', 'y'\]"
    ):
        EstimandEmbedding.from_graph(fork, frame, "x", ["w", "y"], regularization=0.1)
    with pytest.raises(NotCoveredError, match="EstimandEmbedding"):
        InterventionalMeanEmbedding.from_graph(NAPKIN, frame, "x", "y", regularization=0.1)
    with pytest.raises(ValueError, match=r"`given` must be columns of `frame`, got \['dose'\]"):
        EstimandEmbedding.from_graph(NAPKIN, frame, "x", "y", given="dose")
    with pytest.raises(ValueError, match=r"`kernels` must be for nodes of the estimand, .* got \['dose'\]"):
        EstimandEmbedding.from_graph(NAPKIN, frame, "x", "y", kernels={"dose": RBF(1.0)})
    with pytest.raises(ValueError, match="`regularization` must be at least 0, got -1"):
        EstimandEmbedding.from_graph(NAPKIN, frame, "x", "y", regularization=-1.0)
    with pytest.raises(ValueError, match=r"`query` must hold values of \['x'\]"):
        embedding.weights()
    with pytest.raises(ValueError, match=r"`query` must have one column for each of \['x'\], got shape \(3, 2\)"):
        embedding.weights(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="`row_weights` must be at least 0, and not all 0"):
        embedding.with_row_weights(np.zeros(20))
    with pytest.raises(ValueError, match="`points` and `row_weights` must have the same number of rows"):
        embedding.with_row_weights(np.ones(3))


@pytest.mark.slow
def test_the_laws_of_embeddings_hold():
    check_embedding(*next(EstimandEmbedding.examples(jax.random.key(0))))
