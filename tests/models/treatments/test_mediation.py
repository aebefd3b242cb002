"""Direct and indirect effects: identification by all paths, closed forms, enumeration, and least squares."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pandas as pd
import pytest

from kpp.causal import CausalDAG, CausalError, NotCoveredError
from kpp.data.tables import Scales, read_points
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.gp import BernoulliLikelihood, GaussianLikelihood
from kpp.kernels import Linear
from kpp_models import mediation
from kpp_models.treatments.mediation import simulation
from kpp_models.treatments.mediation.effects import _effects, _settings
from kpp_models.treatments.mediation.simulation import MediationQuestion, Regression, mean_outcomes

ONE = CausalDAG([("z", "t"), ("z", "m"), ("z", "y"), ("t", "m"), ("t", "y"), ("m", "y")])
TWO = CausalDAG([("t", "a"), ("t", "b"), ("a", "b"), ("a", "y"), ("b", "y"), ("t", "y")])
KEY = jax.random.key(0)
ROWS = 50


def read(graph, mediators, columns=None):
    return MediationQuestion.read(graph, "t", mediators, "y", graph.nodes if columns is None else columns)


def logistic(f):
    return 1 / (1 + np.exp(-f))


def test_edges_are_direct_or_indirect_or_their_child_is_a_witness():
    """Against all paths of all graphs in which t is first and y last, with two nodes between, in both orders."""
    pairs = list(itertools.combinations("tabcy", 2))
    rng = np.random.default_rng(0)
    seen = {True: 0, False: 0}
    for _ in range(150):
        graph = CausalDAG([pair for pair in pairs if rng.uniform() < 0.6], nodes=list("tabcy"))
        paths = list(nx.all_simple_paths(graph.digraph, "t", "y"))
        mediators = {node for node in "abc" if rng.uniform() < 0.5 and any(node in path for path in paths)}
        if not mediators:
            continue
        kinds = {}
        for path in paths:
            kinds.setdefault(path[1], set()).add(bool(mediators & set(path)))
        identified = all(len(kind) == 1 for kind in kinds.values())
        seen[identified] += 1
        if identified:
            assert read(graph, sorted(mediators)).indirect == {child: kind.pop() for child, kind in kinds.items()}
        else:
            witness = next(child for child in graph.sort(kinds) if len(kinds[child]) > 1)
            with pytest.raises(NotCoveredError, match=f"'{witness}' is a recanting witness"):
                read(graph, sorted(mediators))
    assert min(seen.values()) > 10


def test_the_law_of_a_variable_depends_on_its_parents_and_its_district():
    assert read(ONE, ["m"]).features == {"m": ("t", "z"), "y": ("t", "m", "z")}
    proxy = CausalDAG([*ONE.edges, ("w", "z")], bidirected=[("z", "m"), ("t", "w")])
    assert read(proxy, ["m"]).features == {"m": ("t", "z", "w"), "y": ("t", "m", "z")}


@pytest.mark.parametrize(
    ("graph", "mediators", "columns", "error", "message"),
    [
        (ONE, ["w"], None, CausalError, "`mediators` names no node"),
        (ONE, ["z"], None, CausalError, r"`mediators` must be variables on the causal paths.*\['m'\], got \['z'\]"),
        (ONE, [], None, CausalError, "`mediators` must be"),
        (ONE, ["m"], "tyz", CausalError, r"`data` must have the columns \['m'\]"),
        (ONE, ["m"], "tmy", NotCoveredError, "law of 'm': hidden causes connect it to .'t', 'y'."),
        (CausalDAG(ONE.edges, bidirected=[("m", "y")]), ["m"], None, NotCoveredError, "law of 'm'"),
        (TWO, ["b"], None, NotCoveredError, "'a' is a recanting witness.*t -> a -> y and t -> a -> b"),
        (CausalDAG([("t", "m")], nodes=["y"]), ["m"], None, CausalError, "no directed path"),
    ],
)
def test_questions_without_an_answer_are_refused(graph, mediators, columns, error, message):
    with pytest.raises(error, match=message):
        read(graph, mediators, columns)


def known(table, weights, intercept, likelihood):
    """A regression whose function is linear and known: the kernel has almost no variance."""
    scales = Scales.of(*read_points(table, "data"))
    slopes = (np.array(weights) * scales.scale).reshape(1, 1, -1) * 1e14
    center = np.full((1, 1), intercept + np.dot(weights, scales.center))
    size = len(weights)
    mean = RKHSFunction(
        Linear(jnp.full((1, 1), 1e-14)), jnp.eye(size), jnp.asarray(slopes), jnp.asarray(center), (1, 1)
    )
    arrays = jax.tree.map(lambda leaf: jnp.full((1, 1), leaf), likelihood)
    return Regression(GPPosterior(mean, jnp.zeros((1, 1, size, 1))), arrays, scales, 0.0, 1.0)


@pytest.fixture
def few_draws(monkeypatch):
    """The functions of these tests are known: draws differ by the weights of the rows only."""
    monkeypatch.setattr(simulation, "_NUM_DRAWS", 20)


def effects(question, regressions, held):
    settings = _settings(question, 0.0, 1.0, held)
    means = mean_outcomes(KEY, question, regressions, {}, ROWS, list(settings.values()))
    return _effects(means, list(settings), question)


def table_of(names):
    return pd.DataFrame(np.random.default_rng(0).normal(size=(20, len(names))), columns=list(names))


@pytest.mark.slow
def test_linear_effects_are_products_of_coefficients(few_draws):
    """a = 2 t, b = -t + 3 a, y = t/2 + a/4 - b, each with noise, which differences do not depend on."""
    question, noise = read(TWO, ["a", "b"]), GaussianLikelihood(noise_variance=0.5)
    regressions = {
        "a": known(table_of("t"), [2.0], 0.3, noise),
        "b": known(table_of("ta"), [-1.0, 3.0], 0.0, noise),
        "y": known(table_of("tab"), [0.5, 0.25, -1.0], 1.0, noise),
    }
    found = effects(question, regressions, {"a": 1.0, "b": 0.0})
    through_a, through_b = 2.0 * (0.25 - 3.0), 1.0
    expected = {
        "total": 0.5 + through_a + through_b,
        "natural_direct": 0.5,
        "natural_indirect": through_a + through_b,
        "total_indirect": through_a + through_b,
        "proportion_mediated": (through_a + through_b) / (0.5 + through_a + through_b),
        "controlled_direct": 0.5,
    }
    for name, value in expected.items():  # functions are drawn with a nugget of 1e-10 times the kernel's variance
        np.testing.assert_allclose(found[name], value, atol=1e-5)
    edges = found["path_specific"]
    np.testing.assert_allclose(edges, np.broadcast_to([through_a, through_b, 0.5], edges.shape), atol=1e-5)


@pytest.mark.slow
def test_effects_on_labels_are_those_of_the_mediation_formula(few_draws):
    """By enumeration of the label of the mediator; its quantiles are spread evenly over the rows."""
    question = read(CausalDAG([("t", "m"), ("t", "y"), ("m", "y")]), ["m"])
    regressions = {
        "m": known(table_of("t"), [2.0], -1.0, BernoulliLikelihood()),
        "y": known(table_of("tm"), [1.0, 2.5], -2.0, BernoulliLikelihood()),
    }
    found = effects(question, regressions, {"m": 1.0})

    def nested(t, other):
        label = logistic(-1.0 + 2.0 * other)
        return label * logistic(0.5 + t) + (1 - label) * logistic(-2.0 + t)

    expected = {
        "total": nested(1, 1) - nested(0, 0),
        "natural_direct": nested(1, 0) - nested(0, 0),
        "natural_indirect": nested(0, 1) - nested(0, 0),
        "total_indirect": nested(1, 1) - nested(1, 0),
        "controlled_direct": logistic(1.5) - logistic(0.5),
    }
    # Averages over 20 draws of weights of 50 rows have errors of order 0.3 / sqrt(1000).
    for name, value in expected.items():
        np.testing.assert_allclose(found[name].mean(), value, atol=0.02, err_msg=name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"at": [0.0]}, "`at` must hold two different values"),
        ({"treatment": "z", "mediators": "t"}, "`at` must hold the two values of 'z' to compare, which has 20"),
        ({"controlled": {"z": 1.0}}, r"`controlled` must hold a value for each of \['m'\], got values for \['z'\]"),
        ({"data": None}, "`data` must be a data frame"),
    ],
)
def test_arguments_are_checked(change, message):
    data = table_of("zmy").assign(t=np.arange(20) % 2)
    question = {"data": data, "graph": ONE, "treatment": "t", "mediators": "m", "outcome": "y"} | change
    with pytest.raises((ValueError, TypeError), match=message):
        mediation(KEY, question.pop("data"), question.pop("graph"), **question)


@pytest.mark.nightly
def test_linear_data_give_least_squares_and_its_standard_errors():
    """Products of coefficients with the errors of Sobel; the smooth prior moves both by less than half of them."""
    rng = np.random.default_rng(0)
    z, noise, other = rng.normal(size=(3, 120))
    t = rng.uniform(size=120) < logistic(z)
    m = 0.8 * t + 0.5 * z + 0.6 * noise
    y = m + 0.5 * t + 0.4 * z + 0.5 * other
    data = pd.DataFrame({"z": z, "t": t, "m": m, "y": y})
    found = mediation(KEY, data, ONE, treatment="t", mediators="m", outcome="y").summary()

    def least_squares(columns, target):
        x = np.stack([np.ones(120), *columns], axis=1)
        inverse = np.linalg.inv(x.T @ x)
        coefficients = inverse @ x.T @ target
        residuals = target - x @ coefficients
        return coefficients, np.sqrt(np.diag(inverse) * (residuals @ residuals) / (120 - x.shape[1]))

    (_, a, _), (_, sd_a, _) = least_squares([t, z], m)
    (_, direct, b, _), (_, sd_direct, sd_b, _) = least_squares([t, m, z], y)
    expected = {"natural_direct": (direct, sd_direct), "natural_indirect": (a * b, np.hypot(a * sd_b, b * sd_a))}
    for name, (value, error) in expected.items():
        assert abs(found.loc[name, "mean"] - value) < error / 2
        assert 0.75 < found.loc[name, "sd"] / error < 1.5
