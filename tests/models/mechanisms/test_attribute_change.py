"""The change of an outcome, divided among mechanisms: linear, discrete and Gaussian-process models by enumeration."""

from __future__ import annotations

import itertools
from math import factorial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from kpp.causal import CausalDAG
from kpp.gp import BernoulliLikelihood, GaussianLikelihood
from kpp.kernels import RBF
from kpp_models import GPMechanism, LinearMechanism, StructuralModel
from oracles.kernels import rbf

KEY = jax.random.key(0)
REPEATS = 400


def repeated(parameters):
    """The same draw many times: each has its own random numbers, so their spread is the Monte Carlo error."""
    return {name: np.full((1, REPEATS), value) for name, value in parameters.items()}


def shapley(players, value):
    """Shapley values from a value of each set of players, by the definition."""
    found = {}
    for player in players:
        others, terms = [other for other in players if other != player], []
        for size in range(len(players)):
            weight = factorial(size) * factorial(len(players) - 1 - size) / factorial(len(players))
            terms += [weight * (value({*s, player}) - value(set(s))) for s in itertools.combinations(others, size)]
        found[player] = sum(terms)
    return found


def within(found, expected):
    """Averages over draws are within 4 of their Monte Carlo standard errors."""
    for name, value in expected.items():
        draws = found.values.sel(feature=name).to_numpy().ravel()
        assert abs(draws.mean() - value) < 4 * draws.std() / len(draws) ** 0.5 + 1e-12


@pytest.mark.slow
def test_a_linear_model_with_a_hidden_cause_changes_as_its_moments_do():
    """E[Y^2] by the covariance of a linear system; x and y share a hidden cause, so they are one player."""
    graph = CausalDAG([("w", "x"), ("x", "m"), ("m", "y"), ("y", "z")], bidirected=[("x", "y")])
    edges = [("w", "x"), ("x", "m"), ("m", "y"), ("y", "z")]
    rng, nodes = np.random.default_rng(0), list("wxmyz")

    def parameters():
        drawn = {f"{node}.intercept": rng.normal() for node in nodes}
        drawn |= {f"{node}.likelihood.noise_variance": rng.uniform(0.3, 1.5) for node in nodes}
        drawn |= {f"{child}.coefficients.{parent}": rng.normal() for parent, child in edges}
        return drawn | {"x.loadings.x <-> y": rng.uniform(0.5, 1.0), "y.loadings.x <-> y": rng.normal()}

    first, second = parameters(), parameters()

    def second_moment(players):
        chosen = {node for player in players for node in player.split(", ")}

        def of(node, name):
            return (second if node in chosen else first)[f"{node}.{name}"]

        slopes = np.zeros((5, 5))
        for parent, child in edges:
            slopes[nodes.index(child), nodes.index(parent)] = of(child, f"coefficients.{parent}")
        total = np.linalg.inv(np.eye(5) - slopes)
        mean = total @ [of(node, "intercept") for node in nodes]
        pull = np.array([of(node, "loadings.x <-> y") if node in "xy" else 0.0 for node in nodes])
        noise = np.diag([of(node, "likelihood.noise_variance") for node in nodes]) + np.outer(pull, pull)
        return mean[3] ** 2 + (total @ noise @ total.T)[3, 3]

    table = {node: rng.normal(size=4) for node in nodes}
    changed = table | {"y": table["y"] + 1.0}
    found = StructuralModel(graph).attribute_change(
        KEY,
        (repeated(first), table),
        (repeated(second), changed),
        outcome="y",
        statistic=lambda y: jnp.mean(y**2),
        num_rows=50,
    )
    assert found.feature_names == ("w", "x, y", "m")  # z does not affect y
    within(found, shapley(["w", "x, y", "m"], second_moment))
    assert found.additivity_error().max() < 1e-10  # rounding errors of sums of numbers below 100
    assert found.attrs["observed_change"] == pytest.approx(np.mean(changed["y"] ** 2) - np.mean(table["y"] ** 2))


@pytest.mark.slow
def test_labels_change_as_their_probabilities_do():
    model = StructuralModel(
        CausalDAG([("x", "y")]),
        {name: LinearMechanism(likelihood=BernoulliLikelihood()) for name in "xy"},
    )
    first = {"x.intercept": -0.5, "y.intercept": 0.3, "y.coefficients.x": 1.5}
    second = {"x.intercept": 1.0, "y.intercept": -0.4, "y.coefficients.x": 0.2}

    def mean(chosen):
        of_x, of_y = (second if node in chosen else first for node in "xy")
        share = 1 / (1 + np.exp(-of_x["x.intercept"]))
        rates = 1 / (1 + np.exp(-of_y["y.intercept"] - of_y["y.coefficients.x"] * np.array([0, 1])))
        return (1 - share) * rates[0] + share * rates[1]

    table = {"x": [0.0, 1.0], "y": [0.0, 1.0]}
    found = model.attribute_change(KEY, (repeated(first), table), (repeated(second), table), outcome="y", num_rows=50)
    within(found, shapley(["x", "y"], mean))


@pytest.mark.slow
def test_a_gaussian_process_changes_with_its_table():
    """The mean of a posterior mean over a normal law of x has a closed form; the tables differ in length."""
    noise = GaussianLikelihood(noise_variance=0.2)
    model = StructuralModel(
        CausalDAG([("x", "y")]),
        {"x": LinearMechanism({}, dist.Normal(0.0, 1.0), noise), "y": GPMechanism(RBF(1.0), noise, 0.0)},
    )
    rng = np.random.default_rng(1)
    tables = [{"x": rng.normal(size=size), "y": rng.normal(size=size)} for size in (5, 7)]
    locations = 0.0, 0.8

    def mean(chosen):
        location, table = locations["x" in chosen], tables["y" in chosen]
        x = table["x"][:, None]
        weights = np.linalg.solve(rbf(x, x, 1.0) + 0.2 * np.eye(len(x)), table["y"])
        return np.exp(-0.5 * (table["x"] - location) ** 2 / 1.2) @ weights / 1.2**0.5  # 1 + 0.2, of kernel and law

    periods = [(repeated({"x.intercept": at}), table) for at, table in zip(locations, tables, strict=True)]
    found = model.attribute_change(KEY, *periods, outcome="y", num_rows=20)
    within(found, shapley(["x", "y"], mean))


LINEAR = StructuralModel(CausalDAG([("x", "y")]))
SITES = ["x.intercept", "x.likelihood.noise_variance", "y.intercept", "y.likelihood.noise_variance", "y.coefficients.x"]
PERIOD = {name: np.ones((1, 3)) for name in SITES}, {"x": [0.0, 1.0], "y": [0.0, 1.0]}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"first": PERIOD[0]}, TypeError, "`first` must be a pair .posterior, table., got dict"),
        ({"second": (PERIOD[0], {"x": [0.0]})}, ValueError, "`second` must have a column for each node, got none for"),
        ({"second": ({}, PERIOD[1])}, ValueError, "`posterior` must hold draws of the sites"),
        (
            {"second": ({name: np.ones((1, 2)) for name in SITES}, PERIOD[1])},
            ValueError,
            r"`second` must have as many chains and draws as `first`, \(1, 3\), got \(1, 2\)",
        ),
        ({"outcome": "z"}, ValueError, "`outcome` must be"),
        ({"num_rows": 0}, ValueError, "`num_rows` must be"),
    ],
)
def test_periods_are_checked(change, error, message):
    question = {"first": PERIOD, "second": PERIOD, "outcome": "y"} | change
    with pytest.raises(error, match=message):
        LINEAR.attribute_change(KEY, **question)


def test_many_mechanisms_are_refused():
    names = [f"x{j}" for j in range(13)]
    model = StructuralModel(CausalDAG([(name, "y") for name in names]))
    with pytest.raises(ValueError, match="`outcome` must depend on at most 12 mechanisms, got 14"):
        model.attribute_change(KEY, PERIOD, PERIOD, outcome="y")
