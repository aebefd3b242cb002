"""Adjustment sets against their definition, path by path, and against what regressions on them estimate."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kpp.causal import (
    CausalDAG,
    CausalError,
    LatentNodeError,
    NoAdjustmentError,
    NoOptimalSetError,
    UnknownNodeError,
    adjustment_sets,
    is_adjustment_set,
    is_backdoor_set,
    minimal_adjustment_sets,
    optimal_adjustment_set,
)
from kpp.causal.graph import separation
from kpp.causal.toolkit import NotDisjointError, TreatmentIsOutcomeError, UnreachableOutcomeError


@pytest.fixture(scope="module", params=["small", pytest.param("random", marks=pytest.mark.slow)])
def cases(request, brute) -> list[tuple]:
    """All graphs of four nodes with all latent sets; random ones of six with sets of treatments and outcomes."""
    rng, number = np.random.default_rng(0), 200 if request.param == "random" else 6
    some = [*brute.random_effects(rng, number), *brute.random_effects(rng, number, latent=0.0, bidirected=0.0)]
    return some if request.param == "random" else [*brute.effects(brute.all_dags(4)), *some]


@pytest.fixture(scope="module")
def unlike(cases) -> list[tuple]:
    """The cases without the small ones that differ only in what is latent, of which checks take no notice."""
    return [(graph, x, y) for graph, x, y in cases if len(graph) > 4 or not graph.latent]


@pytest.fixture(scope="module")
def valid(brute, cases) -> list[set[frozenset]]:
    """The adjustment sets of each case by the definition."""
    criteria = [brute.Criteria(*case) for case in cases]
    return [{given for given in brute.subsets(by.observed) if by.adjusts(given)} for by in criteria]


def minimal(sets: set[frozenset]) -> set[frozenset]:
    return {one for one in sets if not any(other < one for other in sets)}


def slopes(model, y, actions, given, x) -> np.ndarray:
    """The coefficients on x of the mean of y after an intervention, given others."""
    return model.law(y, actions, given)[0][:, [model.at[name] for name in sorted(x)]]


def variance(model, x, y, adjusting) -> np.ndarray:
    """The asymptotic covariance of the least-squares coefficients on x, for one outcome."""
    noise = model.law(y, (), x | adjusting)[1]
    return noise * np.linalg.inv(model.law(x, (), adjusting)[1])


@pytest.mark.usefixtures("unchecked")
def test_both_criteria_are_their_definitions(brute, unlike):
    for graph, x, y in unlike:
        by = brute.Criteria(graph, x, y)
        for given in brute.subsets(by.observed):
            adjusts, backdoor = (
                is_adjustment_set(graph, treatment=x, outcome=y, adjusting=given),
                is_backdoor_set(graph, treatment=x, outcome=y, adjusting=given),
            )
            assert bool(adjusts) == by.adjusts(given), (graph, x, y, given)
            assert bool(backdoor) == by.is_backdoor_set(given), (graph, x, y, given)
            assert adjusts or not backdoor


@pytest.mark.usefixtures("unchecked")
def test_a_witness_shows_what_fails(brute, unlike):
    for graph, x, y in unlike:
        by = brute.Criteria(graph, x, y)
        for given in brute.subsets(by.observed):
            check = is_adjustment_set(graph, treatment=x, outcome=y, adjusting=given)
            if check:
                continue
            path, causal = check.witness, set(check.witness.arrows) == {"->"}
            assert path[0] in x
            if path[-1] in given:
                assert causal and path[-1] in by.forbidden and "holds no node on a proper causal path" in str(check)
            else:
                assert (
                    path[-1] in y
                    and not x & set(path[1:])
                    and not causal
                    and "closes every proper path" in check.criterion
                )
                assert graph.d_connecting_path(path[0], path[-1], given)


@pytest.mark.usefixtures("unchecked")
def test_a_set_adjusts_exactly_if_its_regression_gives_the_effect(brute, cases, valid):
    rng = np.random.default_rng(1)
    for (graph, x, y), sets in zip(cases[::2], valid[::2], strict=True):
        model = brute.LinearModel(graph, rng)
        truth = slopes(model, y, x, (), x)
        for given in brute.subsets(graph.observed - x - y):
            # Covariances of a handful of nodes round at about 1e-13; a wrong set is off by much more in a random model.
            assert np.allclose(slopes(model, y, (), x | given, x), truth, rtol=0, atol=1e-8) == (given in sets)


@pytest.mark.usefixtures("unchecked")
def test_where_there_is_no_effect_the_sets_test_its_absence(brute):
    rng = np.random.default_rng(2)
    for graph, x, y in brute.random_effects(rng, 40, there=False):
        by, model = brute.Criteria(graph, x, y), brute.LinearModel(graph, rng)
        sets = {given for given in brute.subsets(by.observed) if by.adjusts(given)}
        assert set(adjustment_sets(graph, treatment=x, outcome=y)) == sets
        assert set(minimal_adjustment_sets(graph, treatment=x, outcome=y)) == minimal(sets)
        for given in brute.subsets(graph.observed - x - y):
            assert bool(is_adjustment_set(graph, treatment=x, outcome=y, adjusting=given)) == (given in sets)
            # Rounding is near 1e-13, the slopes of other sets are far from 0 in a random model.
            assert np.allclose(slopes(model, y, (), x | given, x), 0.0, rtol=0, atol=1e-8) == (given in sets)


@pytest.mark.usefixtures("unchecked")
def test_all_sets_are_listed_once(brute, cases, valid):
    for (graph, x, y), sets in zip(cases, valid, strict=True):
        listed = list(adjustment_sets(graph, treatment=x, outcome=y))
        assert set(listed) == sets and len(listed) == len(sets)


@pytest.mark.usefixtures("unchecked")
def test_all_minimal_sets_are_listed_once(cases, valid):
    for (graph, x, y), sets in zip(cases, valid, strict=True):
        listed = list(minimal_adjustment_sets(graph, treatment=x, outcome=y))
        assert set(listed) == minimal(sets) and len(listed) == len(set(listed))


@pytest.mark.usefixtures("unchecked")
def test_lists_keep_to_what_sets_must_and_may_hold(brute):
    rng = np.random.default_rng(2)
    for graph, x, y in brute.random_effects(rng, 15, latent=0.0):
        others = sorted(graph.observed - x - y)
        within = frozenset(name for name in others if rng.random() < 0.7)
        include = frozenset(name for name in within if rng.random() < 0.3)
        sets = {
            given
            for given in brute.subsets(within)
            if is_adjustment_set(graph, treatment=x, outcome=y, adjusting=given)
        }
        assert set(adjustment_sets(graph, treatment=x, outcome=y, include=include, within=within)) == {
            s for s in sets if include <= s
        }
        assert set(minimal_adjustment_sets(graph, treatment=x, outcome=y, within=within)) == minimal(sets)


@pytest.mark.parametrize("hidden", [[], ["ab"], ["ax", "dy"], ["by", "ax", "cd"]])
def test_the_first_minimal_set_has_the_least_variance_of_all_minimal_ones(brute, hidden):
    # Two ways around: x <- a <- b -> y and x <- c <- d -> y.
    graph = CausalDAG(map(tuple, ["ax", "ba", "by", "cx", "dc", "dy", "xy"]), bidirected=map(tuple, hidden))
    sets = list(minimal_adjustment_sets(graph, treatment="x", outcome="y"))
    assert len(sets) > 1
    for model in (brute.LinearModel(graph, np.random.default_rng(seed)) for seed in range(20)):
        least = variance(model, {"x"}, {"y"}, sets[0])
        assert all(least <= variance(model, {"x"}, {"y"}, given) * (1 + 1e-10) for given in sets)


@pytest.mark.slow_variants("small")
@pytest.mark.usefixtures("unchecked")
def test_the_optimal_set_has_the_least_variance_of_all(brute, cases, valid):
    rng = np.random.default_rng(4)
    tried = 0
    for (graph, x, y), sets in zip(cases, valid, strict=True):
        if not sets:
            with pytest.raises(NoAdjustmentError, match="closes every proper path") as refused:
                optimal_adjustment_set(graph, treatment=x, outcome=y)
            assert refused.value.path[0] in x and refused.value.path[-1] in y
            continue
        try:
            best = optimal_adjustment_set(graph, treatment=x, outcome=y)
        except NoOptimalSetError:
            assert graph.latent or graph.bidirected or not y <= graph.descendants(x)
            continue
        assert best in sets
        if len(sets) > 1 and len(y) == 1:
            tried += 1
            model = brute.LinearModel(graph, rng)
            least = variance(model, x, y, best)
            excess = [np.linalg.eigvalsh(variance(model, x, y, given) - least).min() for given in sets]
            assert min(excess) > -1e-10 * np.trace(least)
    assert tried > 50


@pytest.mark.usefixtures("unchecked")
def test_without_latent_nodes_the_optimal_set_is_the_parents_of_causal_nodes(brute, cases, valid):
    for (graph, x, y), sets in zip(cases, valid, strict=True):
        if sets and not graph.latent and not graph.bidirected and y <= graph.descendants(x):
            by = brute.Criteria(graph, x, y)
            causal = {node for path in by.proper(x, y) if by.is_causal(path) for node in path[1:]}
            assert optimal_adjustment_set(graph, treatment=x, outcome=y) == graph.parents(causal) - by.forbidden - x


def test_where_the_optimal_set_is_refused_the_best_set_depends_on_the_law(brute):
    # a tells what is hidden behind y; but it takes d to adjust for a, and d tells of x.
    graph = CausalDAG([("x", "y"), ("x", "d"), ("d", "a")], bidirected=[("a", "y")])
    with pytest.raises(
        NoOptimalSetError, match=r"beside \[\], adjusting for 'a' may help or harm; .* y <-> a"
    ) as refused:
        optimal_adjustment_set(graph, treatment="x", outcome="y")
    assert refused.value.path == ("y", "a")
    sets = list(adjustment_sets(graph, treatment="x", outcome="y"))
    models = [brute.LinearModel(graph, np.random.default_rng(seed)) for seed in range(20)]
    best = {min(sets, key=lambda given: variance(model, {"x"}, {"y"}, given)) for model in models}
    assert best == {frozenset(), frozenset({"a", "d"})}
    assert optimal_adjustment_set(graph, treatment="x", outcome="y", within=["d"]) == frozenset()


def test_a_proxy_of_what_is_hidden_behind_the_outcome_is_optimal():
    graph = CausalDAG([("z", "x"), ("z", "y"), ("x", "y"), ("hidden", "y"), ("hidden", "w")], latent="hidden")
    assert optimal_adjustment_set(graph, treatment="x", outcome="y") == {"z", "w"}


def test_a_mediator_is_no_adjustment_set():
    # pgmpy 1.1 looks for any set that separates, and so may return m.
    edges = [("u", "x"), ("u", "m"), ("x", "m"), ("m", "y")]
    graph = CausalDAG(edges)
    assert (
        list(adjustment_sets(graph, treatment="x", outcome="y"))
        == list(minimal_adjustment_sets(graph, treatment="x", outcome="y"))
        == [{"u"}]
    )
    check = is_adjustment_set(graph, treatment="x", outcome="y", adjusting="m")
    assert not check and str(check.witness) == "x -> m"
    assert not list(minimal_adjustment_sets(CausalDAG(edges, latent="u"), treatment="x", outcome="y"))


def ladder(rungs: int) -> CausalDAG:
    """Two nodes a rung, each a cause of both on the next: twice as many paths with each rung."""
    rung = [(f"a{place}", f"b{place}") for place in range(rungs)]
    climb = [pair for low, high in itertools.pairwise(rung) for pair in itertools.product(low, high)]
    ends = [(low, "x") for low in rung[0]] + [(high, "y") for high in rung[-1]] + [("x", "y")]
    return CausalDAG(climb + ends)


@pytest.mark.usefixtures("unchecked")
def test_sets_come_with_polynomial_delay(monkeypatch):
    tests = []
    look = separation.d_separated
    monkeypatch.setattr(separation, "d_separated", lambda *arguments: tests.append(1) or look(*arguments))
    listed, counts = adjustment_sets(ladder(15), treatment="x", outcome="y"), []
    for _ in range(50):
        next(listed)
        counts.append(len(tests))
    # One set takes at most two tests for each of the 30 nodes, though there are more than 2^15 sets.
    assert max(np.diff(counts)) <= 60


@pytest.mark.usefixtures("unchecked")
def test_a_graph_with_a_million_billion_paths_is_no_trouble():
    graph = ladder(50)
    rungs = [{f"a{place}", f"b{place}"} for place in range(50)]
    assert list(minimal_adjustment_sets(graph, treatment="x", outcome="y")) == rungs[::-1]
    assert optimal_adjustment_set(graph, treatment="x", outcome="y") == rungs[-1]
    assert is_adjustment_set(graph, treatment="x", outcome="y", adjusting=rungs[7]) and not is_backdoor_set(
        graph, treatment="x", outcome="y", adjusting=["a3", "b4"]
    )


def test_questions_that_make_no_sense_are_refused_by_name():
    graph = CausalDAG([("z", "x"), ("z", "y"), ("x", "y"), ("y", "d"), ("h", "x")], latent="h")
    for ask in (adjustment_sets, minimal_adjustment_sets, optimal_adjustment_set):
        with pytest.raises(UnknownNodeError, match="`treatment` names no node"):
            ask(graph, treatment="q", outcome="y")
        with pytest.raises(TreatmentIsOutcomeError, match=r"both hold \['x'\]"):
            ask(graph, treatment="x", outcome=["y", "x"])
        with pytest.raises(LatentNodeError, match="`treatment` must be observed"):
            ask(graph, treatment="h", outcome="y")
        with pytest.raises(UnknownNodeError, match="`within` names no node"):
            ask(graph, treatment="x", outcome="y", within="q")
    with pytest.raises(UnreachableOutcomeError, match="no directed path leads from `treatment`"):
        optimal_adjustment_set(graph, treatment="y", outcome="x")
    for check in (is_adjustment_set, is_backdoor_set):
        with pytest.raises(LatentNodeError, match=r"`adjusting` must be observed, latent in the graph are \['h'\]"):
            check(graph, treatment="x", outcome="y", adjusting="h")
        with pytest.raises(NotDisjointError, match=r"`adjusting` and `treatment` or `outcome` must share no node"):
            check(graph, treatment="x", outcome="y", adjusting=["z", "y"])
    with pytest.raises(CausalError, match=r"`include` must be part of `within`, which lacks \['z'\]"):
        adjustment_sets(graph, treatment="x", outcome="y", include="z", within=())
    with pytest.raises(
        NoAdjustmentError, match=r"no set of allowed nodes adjusts for .* on \['y'\]: .*; see the path x <- z -> y"
    ):
        optimal_adjustment_set(graph, treatment="x", outcome="y", within=())
    assert list(adjustment_sets(graph, treatment="x", outcome="y", include="d")) == []
    assert str(is_backdoor_set(graph, treatment="x", outcome="y", adjusting="d")).endswith("see the path x -> y -> d")
    assert str(is_backdoor_set(graph, treatment="x", outcome="y", adjusting=())).endswith("see the path x <- z -> y")
    assert str(is_backdoor_set(graph, treatment="x", outcome="y", adjusting="z")) == "holds"
