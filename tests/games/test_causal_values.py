"""Causal value functions: closed forms of linear models, laws of discrete models, and what is not identified."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import kpp
from kpp.causal import CausalDAG, CausalError, CausalOrder, NotIdentifiableError, UnknownNodeError
from kpp.functions import RKHSFunction
from kpp.games import (
    Causal,
    CausalEmbedding,
    GaussianConditional,
    Interventional,
    Observational,
    all_coalitions,
    asymmetric_shapley_values,
    direct_and_indirect_effects,
    shapley_values,
    shapley_values_from_table,
)
from kpp.kernels import RBF
from oracles.kernels import rbf

RNG = np.random.default_rng(5)
NUM_ROWS = 300
HIDDEN, NOISE = RNG.normal(size=NUM_ROWS), RNG.normal(size=(NUM_ROWS, 3))
A = NOISE[:, 0] + HIDDEN
B = 0.8 * A + NOISE[:, 1]
C = 0.5 * A - 0.7 * B + 0.5 * NOISE[:, 2] + HIDDEN
X = np.stack([A, B, C], axis=1)
SLOPES = np.array([1.0, 2.0, -1.0])
POINTS = X[:2] + 0.3
COALITIONS = all_coalitions(3)
# A ridge of 1e-9 keeps correlation matrices positive definite.
ROUNDING = 1e-7


def linear(x):
    return x @ SLOPES


def curved(x):
    return x[:, 0] * x[:, 1] + np.tanh(x[:, 2])


def regression(target: int, *causes: int):
    """The least-squares prediction of a column from others."""
    design = np.column_stack([np.ones(NUM_ROWS), *(X[:, cause] for cause in causes)])
    found = np.linalg.lstsq(design, X[:, target], rcond=None)[0]
    return lambda *values: found @ np.array([1.0, *values])


def means_by_parents(mask, x, parents):
    """The means of the features after an intervention in a linear model without hidden causes, causes first."""
    values = {}
    for node, causes in parents.items():
        values[node] = x[node] if mask[node] else regression(node, *causes)(*(values[cause] for cause in causes))
    return np.array([values[0], values[1], values[2]])


CHAIN = {0: (), 1: (0,), 2: (1,)}
BACKWARDS = {2: (), 1: (2,), 0: (1, 2)}


@pytest.mark.slow_variants("backwards", "chain")
@pytest.mark.parametrize("parents", [CHAIN, BACKWARDS], ids=["chain", "backwards"])
def test_values_of_linear_models_without_hidden_causes(parents):
    graph = CausalDAG([("abc"[cause], "abc"[node]) for node, causes in parents.items() for cause in causes])
    found = Causal(X, graph, feature_names=("a", "b", "c"))(linear, POINTS, COALITIONS)
    known = [[SLOPES @ means_by_parents(mask, x, parents) for x in POINTS] for mask in COALITIONS]
    np.testing.assert_allclose(found, known, rtol=ROUNDING, atol=ROUNDING)


def front_door(mask, x):
    """a -> b -> c, and a hidden common cause of a and c."""
    a = x[0] if mask[0] else X[:, 0].mean()
    b = x[1] if mask[1] else regression(1, 0)(a)
    if mask[2]:
        return np.array([a, b, x[2]])
    # c given do(b) averages over a; without do(a), a and c keep their common law.
    return np.array([a, b, regression(2, 0, 1)(X[:, 0].mean(), b)])


@pytest.mark.slow
def test_values_behind_a_front_door():
    graph = CausalDAG([("a", "b"), ("b", "c")], bidirected=[("a", "c")])
    found = Causal(X, graph)(linear, POINTS, COALITIONS)
    known = [[SLOPES @ front_door(mask, x) for x in POINTS] for mask in COALITIONS]
    np.testing.assert_allclose(found, known, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.slow
def test_a_latent_node_is_a_hidden_common_cause():
    bidirected = CausalDAG([("a", "b"), ("b", "c")], bidirected=[("a", "c")])
    latent = CausalDAG([("a", "b"), ("b", "c"), ("u", "a"), ("u", "c"), ("c", "y")], latent="u")
    names = ("a", "b", "c")  # the outcome y is a node, but not a feature
    values = [Causal(X, graph, feature_names=names)(linear, POINTS, COALITIONS) for graph in (bidirected, latent)]
    np.testing.assert_allclose(*values)


@pytest.mark.parametrize("game", [Causal, CausalEmbedding])
def test_effects_that_are_not_identified_are_refused(game):
    graph = CausalDAG([("a", "b"), ("b", "c")], bidirected=[("a", "b")])
    if game is Causal:
        with pytest.raises(NotIdentifiableError, match="hedge") as caught:
            game(X, graph)
        assert caught.value.hedge.roots == {"b"}
    else:
        with pytest.raises(CausalError):
            game(X, graph)


def ordered_means(mask, x, confounded):
    """The order a, then b and c together."""
    a = x[0] if mask[0] else X[:, 0].mean()
    values = np.array([a, x[1], x[2]])
    for node, other in ((1, 2), (2, 1)):
        if not mask[node]:
            known = not confounded and mask[other]
            values[node] = regression(node, 0, other)(a, x[other]) if known else regression(node, 0)(a)
    return values


@pytest.mark.slow_variants("False", "True")
@pytest.mark.parametrize("confounded", [True, False])
def test_values_by_a_causal_order(confounded):
    order = CausalOrder(["a", ("b", "c")], confounded)
    found = Causal(X, order)(linear, POINTS, COALITIONS)
    known = [[SLOPES @ ordered_means(mask, x, confounded) for x in POINTS] for mask in COALITIONS]
    np.testing.assert_allclose(found, known, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.slow
def test_one_group_is_the_marginal_or_the_conditional_game():
    names = ("a", "b", "c")
    confounded, conditional = (Causal(X, CausalOrder([names], flag)) for flag in (True, False))
    marginal = Interventional(X)(linear, POINTS, COALITIONS)
    np.testing.assert_allclose(confounded(linear, POINTS, COALITIONS), marginal, rtol=ROUNDING, atol=ROUNDING)
    known = GaussianConditional(X)(linear, POINTS, COALITIONS)
    np.testing.assert_allclose(conditional(linear, POINTS, COALITIONS), known, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.slow
def test_variances_after_interventions():
    """The mean of squares: r = 15,000 samples of a square have a standard error of about 1 %."""
    graph = CausalDAG([("a", "b"), ("b", "c"), ("a", "c")])
    game = Causal(X, graph, samples_per_point=50)
    (found,) = np.asarray(game(lambda x: x[:, 2] ** 2, POINTS[:1], np.array([[False, True, False]])))[:, 0]
    mean = regression(2, 0, 1)(X[:, 0].mean(), POINTS[0, 1])
    design = np.column_stack([np.ones(NUM_ROWS), X[:, :2]])
    slopes, rest = np.linalg.lstsq(design, X[:, 2], rcond=None)[:2]
    variance = slopes[1] ** 2 * X[:, 0].var() + rest[0] / NUM_ROWS
    assert found == pytest.approx(mean**2 + variance, rel=0.04)


def discrete_rows():
    """Rows of a discrete model a -> b, (a, b) -> c, with a common cause of c and d that is hidden."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 50)
    hidden = rng.integers(0, 2, 50)
    b = (a + (rng.uniform(size=50) < 0.3)) % 2
    c = (a * b + hidden + (rng.uniform(size=50) < 0.2)) % 3
    d = (hidden + (rng.uniform(size=50) < 0.2)) % 2
    return np.stack([a, b, c, d], axis=1).astype(float)


def discrete_value(rows, f, x, mask):
    """E f after do(x_S), by enumeration: P(a) P(b | a) P(c, d | a, b), whose absent members stay together."""
    total = 0.0
    for a, b in itertools.product((0.0, 1.0), repeat=2):
        chance = 1.0
        for node, value, given in ((0, a, ()), (1, b, (0,))):
            known = np.all([rows[:, cause] == (a, b)[cause] for cause in given], axis=0) | np.zeros(len(rows), bool)
            chance *= float(value == x[node]) if mask[node] else np.mean(rows[known][:, node] == value)
        same = rows[(rows[:, 0] == a) & (rows[:, 1] == b)]
        filled = np.where(mask, x, same)
        filled[:, 0], filled[:, 1] = a, b
        total += chance * f(filled).mean()
    return total


@pytest.mark.slow
def test_draws_along_the_graph_have_the_law_of_a_discrete_model():
    """The kernel is an indicator, so the weights are frequencies; 4000 draws of f have a standard error of 0.025."""
    rows, x = discrete_rows(), np.array([1.0, 0.0, 2.0, 1.0])
    graph = CausalDAG([("a", "b"), ("a", "c"), ("b", "c")], nodes=list("abcd"), bidirected=[("c", "d")])
    kernel = RBF(jnp.full(4, 0.05))  # 1 for equal values and otherwise below 1e-80
    game = CausalEmbedding(rows, graph, kernel=kernel, regularization=1e-8, samples_per_point=80)

    def f(z):
        return z[:, 2] * (1 + z[:, 3]) + z[:, 0] - z[:, 1] * z[:, 3]

    coalitions = all_coalitions(4)
    found = np.asarray(game(f, x[None], coalitions))[:, 0]
    known = [discrete_value(rows, f, x, mask) for mask in coalitions]
    np.testing.assert_allclose(found, known, atol=0.1)


@pytest.mark.slow
def test_draws_follow_a_relation_that_is_not_linear():
    rng = np.random.default_rng(1)
    a = rng.uniform(-2, 2, 200)
    rows = np.stack([a, a**2 + 0.1 * rng.normal(size=200)], axis=1)
    game = CausalEmbedding(rows, CausalDAG([("a", "b")]), kernel=RBF(jnp.full(2, 0.3)), regularization=1e-4)
    values = np.asarray(game(lambda z: z[:, 1], np.array([[1.5, 9.0], [0.0, 9.0]]), np.array([[True, False]])))[0]
    np.testing.assert_allclose(values, [2.25, 0.0], atol=0.15)  # the kernel averages over 0.3 around a


@pytest.mark.slow
def test_effects_add_up_and_indirect_ones_need_dependence():
    graph = CausalDAG([("a", "b"), ("b", "c")])
    for game in (Causal(X, graph), GaussianConditional(X), Interventional(X)):
        direct, indirect = direct_and_indirect_effects(game, curved, POINTS)
        values = shapley_values(game, curved, POINTS)
        np.testing.assert_allclose(direct + indirect, values, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(indirect, 0.0, atol=1e-11)


@pytest.mark.slow
def test_effects_of_a_chain_in_closed_form():
    """f = c after a -> b -> c: a and b have no direct effect, c has no indirect one."""
    graph = CausalDAG([("a", "b"), ("b", "c")])
    direct, indirect = direct_and_indirect_effects(Causal(X, graph), lambda x: x[:, 2], POINTS)
    np.testing.assert_allclose(direct[:, :2], 0.0, atol=1e-9)
    np.testing.assert_allclose(indirect[:, 2], 0.0, atol=1e-9)
    assert np.all(np.abs(np.asarray(indirect[:, 1])) > 1e-3)


@pytest.mark.slow
def test_effects_of_groups():
    graph = CausalDAG([("a", "b"), ("b", "c")])
    found = direct_and_indirect_effects(Causal(X, graph), linear, POINTS, groups={"bc": [1, 2]})
    known = shapley_values(Causal(X, graph), linear, POINTS, groups={"bc": [1, 2]})
    np.testing.assert_allclose(found.direct + found.indirect, known, rtol=1e-9)


def by_all_orders(values, order):
    """Average the gains over all orders of three players that respect pairs (before, after)."""
    table = {tuple(mask): value for mask, value in zip(COALITIONS, np.asarray(values), strict=True)}
    orders = [p for p in itertools.permutations(range(3)) if all(p.index(i) < p.index(j) for i, j in order)]
    phi = np.zeros((3, len(POINTS)))
    for players in orders:
        mask = [False] * 3
        for player in players:
            before = table[tuple(mask)]
            mask[player] = True
            phi[player] += (table[tuple(mask)] - before) / len(orders)
    return phi.T


@pytest.mark.parametrize("order", [[], [(0, 1)], [(0, 1), (1, 2)], [(0, 2), (1, 2)]], ids=str)
def test_asymmetric_values_average_over_the_orders_that_respect_the_graph(order):
    game = Interventional(X)
    named = [(f"x{i}", f"x{j}") for i, j in order]
    found = asymmetric_shapley_values(game, curved, POINTS, named)
    known = by_all_orders(game(curved, POINTS, COALITIONS), order)
    np.testing.assert_allclose(found.values, known, rtol=1e-10)


def test_asymmetric_values_of_graphs_and_orders():
    game, names = Interventional(X), ("a", "b", "c")
    pairs = asymmetric_shapley_values(game, curved, POINTS, [("a", "c"), ("b", "c")], feature_names=names).values
    order = CausalOrder([("a", "b"), "c"])
    graph = CausalDAG([("a", "m"), ("m", "c"), ("b", "c")])  # m is not a feature
    for given in (order, graph):
        found = asymmetric_shapley_values(game, curved, POINTS, given, feature_names=names).values
        np.testing.assert_allclose(found, pairs)


def test_a_long_chain_of_players_needs_few_coalitions():
    rows = np.random.default_rng(0).normal(size=(30, 25))
    names = [f"x{j}" for j in range(25)]
    chain = list(itertools.pairwise(names))
    found = asymmetric_shapley_values(Interventional(rows), lambda x: x.sum(axis=1), rows[:1], chain)
    assert found.num_coalitions == 26
    np.testing.assert_allclose(found.values[0], rows[0] - rows.mean(axis=0), atol=1e-12)
    with pytest.raises(ValueError, match="more than 16384 coalitions"):
        asymmetric_shapley_values(Interventional(rows), lambda x: x.sum(axis=1), rows[:1], [])


@pytest.mark.nightly
def test_a_gaussian_process_is_explained_with_its_uncertainty():
    frame = pd.DataFrame(X[:30], columns=["a", "b", "c"])
    precision = np.linalg.inv(rbf(X[:30], X[:30]) + 0.1 * np.eye(30))
    mean = RKHSFunction(RBF(jnp.ones(3)), X[:30], precision @ linear(X[:30]))
    graph = CausalDAG([("c", "a"), ("a", "b")])  # nodes in another order than the columns
    options = {"value_function": "causal", "graph": graph, "background": frame, "covariance": "point"}
    explanation = kpp.explain(kpp.GPPosterior(mean, np.linalg.cholesky(precision)), frame[:2], **options)
    game = Causal(X[:30], graph, feature_names=("a", "b", "c"))
    np.testing.assert_allclose(explanation.dataset["values"], shapley_values(game, mean, X[:2]), rtol=1e-8)
    # The posterior covariance of the function at all imputed rows, and the Shapley values of its values there.
    rows = np.asarray(game.impute(None, X[:2], COALITIONS))[:, 0].reshape(-1, 3)
    sections = rbf(rows, X[:30])
    covariance = rbf(rows, rows) - sections @ precision @ sections.T
    loads = np.repeat(np.asarray(shapley_values_from_table(np.eye(8))) / 30, 30, axis=1)
    found = explanation.dataset["covariance"][0]
    np.testing.assert_allclose(found, loads @ covariance @ loads.T, rtol=1e-6, atol=1e-12)
    assert "c -> a" in explanation.attrs["graph"]


CASES = {
    "unknown feature": (
        lambda: Causal(X, CausalDAG([("a", "b")]), feature_names="abc"),
        UnknownNodeError,
        "feature_names",
    ),
    "a feature twice": (
        lambda: Causal(X, CausalDAG([("a", "b")]), feature_names=("a", "a", "b")),
        ValueError,
        r"`feature_names` must be different from each other, got \['a'\] more than once",
    ),
    "too few nodes": (lambda: Causal(X, CausalDAG([("a", "b")])), ValueError, "`graph` must name the 3 features"),
    "order with another name": (
        lambda: Causal(X, CausalOrder(["a", "b", "c", "d"]), feature_names="abc"),
        UnknownNodeError,
        "`graph`",
    ),
    "conditionals": (lambda: Causal(X, CausalOrder(["abc"]), conditionals="exact"), ValueError, "conditionals"),
    "a name twice": (lambda: CausalOrder(["a", "a"]), CausalError, "more than once"),
    "flags": (lambda: CausalOrder(["a", "b"], [True]), CausalError, "one per group"),
    "effects of weights": (
        lambda: direct_and_indirect_effects(Observational(X[:20]), linear, POINTS),
        TypeError,
        "beside the present ones",
    ),
    "no player in the order": (
        lambda: asymmetric_shapley_values(Interventional(X), linear, POINTS, CausalDAG([("u", "v")])),
        UnknownNodeError,
        "order",
    ),
    "a group outside of the order": (
        lambda: asymmetric_shapley_values(Interventional(X), linear, POINTS, [("x0", "x1")], groups={"g": [1, 2]}),
        UnknownNodeError,
        "order",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_invalid_input_is_refused_by_name(name):
    call, error, message = CASES[name]
    with pytest.raises(error, match=message):
        call()


def test_asymmetric_values_in_an_explanation():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    options = {"value_function": "interventional", "background": frame, "order": CausalOrder(["c", ("a", "b")])}
    options["explainer"] = "kernel-shap"
    explanation = kpp.explain(curved, frame[:2], **options)
    known = asymmetric_shapley_values(Interventional(X), curved, X[:2], [("x2", "x0"), ("x2", "x1")])
    np.testing.assert_allclose(explanation.dataset["values"], known.values, rtol=1e-9)
    assert explanation.attrs["method"] == "asymmetric"
    with pytest.raises(ValueError, match="`order` gives asymmetric Shapley values"):
        kpp.explain(
            RKHSFunction(RBF(), X[:2], np.ones(2)),
            frame[:2],
            interactions="SII",
            **(options | {"explainer": "rkhs-shap"}),
        )


@pytest.mark.slow
def test_any_function_gets_causal_values():
    frame, graph = pd.DataFrame(X, columns=["a", "b", "c"]), "dag { a -> b -> c }"
    options = {"background": frame, "value_function": "causal", "graph": graph}
    explanation = kpp.explain(linear, frame[:2], explainer="kernel-shap", **options)
    game = Causal(X, CausalDAG([("a", "b"), ("b", "c")]))
    known = shapley_values_from_table(game(linear, X[:2], COALITIONS)).T
    np.testing.assert_allclose(explanation.dataset["values"], known, rtol=1e-9)
    assert explanation.attrs["value_function"] == "causal"
