"""Counterfactuals of units: Pearl's example, path products, enumerated labels and counts, and Gaussian processes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from kpp.causal import CausalDAG
from kpp.gp import BernoulliLikelihood, GaussianLikelihood, PoissonLikelihood, StudentTLikelihood
from kpp.kernels import RBF
from kpp_models import GPMechanism, LinearMechanism, StructuralModel, causation_bounds

KEY = jax.random.key(0)
CHAIN = CausalDAG([("x", "y")])
NOISE = GaussianLikelihood(noise_variance=0.5)
#: Many draws of a model in which all else is known: draws of a parameter that counterfactuals do not depend on.
SPARE = LinearMechanism({}, 0.0, GaussianLikelihood(noise_variance=dist.HalfNormal(1.0)))
DRAWS = {"x.likelihood.noise_variance": np.ones((1, 4000))}


def linear(coefficients, likelihood=NOISE, **loadings):
    return LinearMechanism(coefficients, 0.0, likelihood, loadings or None)


def within(found, expected, shares=4.0):
    """Monte Carlo averages of labels, within 4 standard errors of at most 1 / (2 sqrt(n))."""
    np.testing.assert_allclose(found.mean(("chain", "draw")), expected, atol=shares * 0.5 / found.sizes["draw"] ** 0.5)


def test_joe_would_have_scored_1_90_with_twice_the_homework():
    """Pearl, Glymour and Jewell, Causal inference in statistics: a primer, section 4.2.3."""
    graph = CausalDAG([("encouragement", "homework"), ("encouragement", "score"), ("homework", "score")])
    mechanisms = {
        "encouragement": linear({}),
        "homework": linear(0.5),
        "score": linear({"encouragement": 0.7, "homework": 0.4}),
    }
    joe = {"encouragement": [0.5], "homework": [1.0], "score": [1.5]}
    found = StructuralModel(graph, mechanisms).counterfactual(KEY, {}, joe, do={"homework": 2.0})
    np.testing.assert_allclose(found["score"], 1.90, rtol=1e-12)
    np.testing.assert_array_equal(found["encouragement"], 0.5)


@pytest.mark.slow_variants("hidden-normal", "hidden-student")
@pytest.mark.parametrize("likelihood", [NOISE, StudentTLikelihood(4.0, 0.7)], ids=["normal", "student"])
@pytest.mark.parametrize("bidirected", [[], [("m", "y"), ("x", "y")]], ids=["seen", "hidden"])
def test_a_linear_counterfactual_moves_by_the_products_along_paths(bidirected, likelihood):
    graph = CausalDAG([("x", "m"), ("m", "y"), ("x", "y")], bidirected=bidirected)
    hidden = {node: {f"{a} <-> {b}": 0.8 for a, b in bidirected if node in (a, b)} for node in "xmy"}
    coefficients = {"x": {}, "m": {"x": 2.0}, "y": {"x": -0.5, "m": 3.0}}
    mechanisms = {node: linear(coefficients[node], likelihood, **hidden[node]) for node in "xmy"}
    rng = np.random.default_rng(1)
    units = {node: rng.normal(size=3) for node in "xmy"}
    to = np.array([1.0, -2.0, 0.0])
    found = StructuralModel(graph, mechanisms).counterfactual(KEY, {}, units, do={"x": to})
    np.testing.assert_allclose(found["m"][0, 0], units["m"] + 2.0 * (to - units["x"]), rtol=1e-12)
    np.testing.assert_allclose(found["y"][0, 0], units["y"] + 5.5 * (to - units["x"]), rtol=1e-12)


@pytest.mark.slow_variants("counts", "labels")
@pytest.mark.parametrize("likelihood", [BernoulliLikelihood(), PoissonLikelihood()], ids=["labels", "counts"])
def test_labels_and_counts_keep_their_quantile(likelihood):
    """The law of y' given y by enumeration: the intervals of quantiles of y and of y' overlap."""
    model = StructuralModel(CHAIN, {"x": SPARE, "y": linear(0.8, likelihood)})
    units = {"x": np.array([1.0, 1.0, -1.0]), "y": np.array([0.0, 1.0, 1.0])}
    after = 0.5
    law = (
        (lambda f: stats.bernoulli(1 / (1 + np.exp(-f))))
        if isinstance(likelihood, BernoulliLikelihood)
        else (lambda f: stats.poisson(np.exp(f)))
    )
    found = model.counterfactual(KEY, DRAWS, units, do={"x": after})["y"]
    before, levels = law(0.8 * units["x"]), np.arange(30)
    low, high = before.cdf(units["y"] - 1)[:, None], before.cdf(units["y"])[:, None]
    shares = np.minimum(high, law(0.8 * after).cdf(levels)) - np.maximum(low, law(0.8 * after).cdf(levels - 1))
    expected = np.maximum(shares, 0.0) / (high - low)
    for level in range(3):
        within(found == level, expected[:, level])
    same = model.counterfactual(KEY, DRAWS, units, do={"x": units["x"]})["y"]
    np.testing.assert_array_equal(same, np.broadcast_to(units["y"], same.shape))


@pytest.mark.slow
def test_a_hidden_cause_of_a_label_has_its_posterior_given_the_unit():
    """Against quadrature over the hidden cause; 256 candidates err by less than a Monte Carlo standard error."""
    graph = CausalDAG([("x", "y")], bidirected=[("x", "y")])
    mechanisms = {
        "x": LinearMechanism({}, 0.0, GaussianLikelihood(noise_variance=dist.HalfNormal(1.0)), {"x <-> y": 0.9}),
        "y": linear(1.0, BernoulliLikelihood(), **{"x <-> y": 2.0}),
    }
    units = {"x": np.array([1.0, 1.0, -0.5]), "y": np.array([1.0, 0.0, 1.0])}
    draws = {"x.likelihood.noise_variance": np.full((1, 4000), 0.5)}
    found = StructuralModel(graph, mechanisms).counterfactual(KEY, draws, units, do={"x": 0.0})["y"]
    u = np.linspace(-8.0, 8.0, 4001)[:, None]
    before, after = (1 / (1 + np.exp(-(x + 2.0 * u))) for x in (units["x"], 0.0))
    density = stats.norm.pdf(u) * stats.norm.pdf(units["x"], 0.9 * u, 0.5**0.5)
    density = density * np.where(units["y"] == 1, before, 1 - before)
    kept = np.where(units["y"] == 1, np.minimum(after / before, 1), 1 - np.minimum((1 - after) / (1 - before), 1))
    within(found, (density * kept).sum(0) / density.sum(0))


@pytest.mark.slow
def test_a_gaussian_process_moves_by_the_difference_of_one_function():
    """Moments of y' - y against the conditional law of g(x') - g(x), for two units jointly."""
    rng = np.random.default_rng(2)
    table = {"x": rng.normal(size=6), "y": rng.normal(size=6)}
    units, to = {"x": np.array([0.3, -1.0]), "y": np.array([2.0, 0.0])}, np.array([1.5, 0.3])
    model = StructuralModel(CHAIN, {"x": SPARE, "y": GPMechanism(RBF(0.8), NOISE, 0.0)})
    found = model.counterfactual(KEY, DRAWS, table, units, do={"x": to})["y"].to_numpy()[0] - units["y"]
    points = np.concatenate([to, units["x"]])
    gram = lambda a, b: np.exp(-0.5 * (a[:, None] - b[None]) ** 2 / 0.8**2)  # noqa: E731
    gain = np.linalg.solve(gram(table["x"], table["x"]) + 0.5 * np.eye(6), gram(table["x"], points)).T
    move = np.concatenate([np.eye(2), -np.eye(2)], axis=1)
    covariance = move @ (gram(points, points) - gain @ gram(table["x"], points)) @ move.T
    error = 4 * np.sqrt(np.diag(covariance) / len(found))
    np.testing.assert_array_less(np.abs(found.mean(0) - move @ gain @ table["y"]), error)
    np.testing.assert_allclose(np.cov(found.T), covariance, atol=4 * covariance.max() * (2 / len(found)) ** 0.5)


@pytest.mark.slow
def test_the_probabilities_of_causation_of_a_table_lie_at_their_lower_bounds():
    """Labels that grow with their latent values are never prevented by a treatment with a positive coefficient."""
    mechanisms = {"x": linear({}, BernoulliLikelihood()), "y": LinearMechanism(1.5, -0.5, BernoulliLikelihood())}
    rng = np.random.default_rng(3)
    x = rng.integers(2, size=300).astype(float)
    table = {"x": x, "y": (rng.uniform(size=300) < 1 / (1 + np.exp(0.5 - 1.5 * x))).astype(float)}
    model = StructuralModel(CHAIN, mechanisms)
    without, treated = (model.counterfactual(KEY, {}, table, do={"x": value})["y"][0, 0].to_numpy() for value in (0, 1))
    joint = np.array([[np.mean((x == a) & (table["y"] == b)) for b in (0, 1)] for a in (0, 1)])
    found = causation_bounds(treated.mean(), without.mean(), joint).sel(bound="lower")
    np.testing.assert_allclose(found["PNS"], np.mean(treated > without), atol=1e-12)
    np.testing.assert_allclose(found["PN"], 1 - without[(x == 1) & (table["y"] == 1)].mean(), atol=1e-12)
    np.testing.assert_allclose(found["PS"], treated[(x == 0) & (table["y"] == 0)].mean(), atol=1e-12)


@pytest.mark.nightly
def test_intervals_of_counterfactuals_hold():
    """In 100 tables of the model the 90 % interval has the truth 84 to 96 times: 2 standard errors."""
    rng, place = np.random.default_rng(4), np.linspace(-2, 2, 25)
    model = StructuralModel(CHAIN, {"x": SPARE, "y": GPMechanism(RBF(0.8), NOISE, 0.0)})
    points = np.append(place, 1.1)
    factor = np.linalg.cholesky(np.exp(-0.5 * (points[:, None] - points[None]) ** 2 / 0.64) + 1e-9 * np.eye(26))
    draws, hits = {name: value[:, :200] for name, value in DRAWS.items()}, 0
    for _ in range(100):
        function, noise = factor @ rng.normal(size=26), 0.5**0.5 * rng.normal(size=25)
        table = {"x": jnp.asarray(place), "y": function[:25] + noise}
        unit = {name: values[5:6] for name, values in table.items()}
        found = model.counterfactual(KEY, draws, table, unit, do={"x": 1.1})["y"]
        low, high = np.quantile(found, [0.05, 0.95])
        hits += low < function[25] + noise[5] < high
    assert 84 <= hits <= 96


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unit": {"x": [0.0]}}, "`unit` must have a column for each node, got none for .'y'."),
        ({"unit": {"x": [0.0], "y": [0.5]}}, r"`unit\['y'\]` must hold values in the support"),
        ({"unit": {"x": [0.0], "y": [1.0], "w": [0.0]}}, "`unit` must have columns among"),
        ({"do": {"w": 0.0}}, "`do`"),
        ({"do": {"x": [0.0, 1.0]}}, r"`do\['x'\]` must be a number or have shape \(1,\)"),
    ],
)
def test_units_and_interventions_are_checked(change, message):
    model = StructuralModel(CHAIN, {"x": linear({}), "y": linear(1.0, BernoulliLikelihood())})
    question = {"unit": {"x": [0.0], "y": [1.0]}, "do": {"x": 1.0}} | change
    with pytest.raises(ValueError, match=message):
        model.counterfactual(KEY, {}, {"x": [0.0], "y": [1.0]}, **question)
