"""Structural models: graphs come back, posteriors of linear mechanisms are least squares, effects are path products."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import handlers
from numpyro.infer import Predictive
from numpyro.infer.util import log_density
from scipy import stats

import kpp
from kpp.causal import CausalDAG, CausalError
from kpp.gp import BernoulliLikelihood, GaussianLikelihood, PoissonLikelihood
from kpp.kernels import RBF
from kpp_models import GPMechanism, LinearMechanism, StructuralModel

TRIANGLE = CausalDAG([("z", "x"), ("z", "y"), ("x", "y")])
# The treatment x has two paths to y; w and y share a hidden cause, and u is a latent node.
RICH = CausalDAG(
    [("u", "x"), ("x", "m"), ("m", "y"), ("x", "y"), ("u", "w"), ("w", "m")], latent=["u"], bidirected=[("w", "y")]
)
CHILD_FIRST = CausalDAG([("b", "a"), ("c", "b"), ("c", "a")], nodes=["a", "b", "c"])
GRAPHS = [
    CausalDAG(nodes=["a"]),
    TRIANGLE,
    RICH,
    CHILD_FIRST,
    CausalDAG([("z", "x"), ("x", "y")], bidirected=[("x", "y")]),
    CausalDAG([("a", "m"), ("m", "b")], latent=["m"], bidirected=[("a", "b"), ("b", "c"), ("a", "c")]),
    CausalDAG([("a", "c"), ("b", "c"), ("c", "d"), ("e", "d"), ("c", "e")], nodes=list("edcba")),
]
GAUSSIAN_PROCESS = GPMechanism(RBF(dist.LogNormal(0.0, 1.0)))
NORMAL = dist.Normal(0.0, 1.0)


def table_of(graph, num_rows=4, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=num_rows) for name in graph.sort(graph.observed)}


def fixed(coefficients, noise_variance=1.0, **loadings):
    likelihood = GaussianLikelihood(noise_variance=noise_variance)
    return LinearMechanism(coefficients, 0.0, likelihood, loadings or None)


@pytest.mark.parametrize("default", [None, GAUSSIAN_PROCESS], ids=["linear", "gp"])
@pytest.mark.parametrize("graph", GRAPHS, ids=str)
def test_the_graph_of_the_model_of_a_graph_is_the_graph(graph, default):
    found = CausalDAG.from_numpyro(StructuralModel(graph, default=default), table_of(graph), plate="rows")
    hidden = [name for name in graph.canonical() if name not in graph]
    assert found == CausalDAG(graph.canonical(), latent=[*graph.latent, *hidden])
    assert found.project() == graph.project()


@pytest.mark.slow
def test_each_node_is_a_site_and_parameters_are_named_after_it():
    sites = kpp.inference.inspect_sites(StructuralModel(RICH), {"table": table_of(RICH)})
    assert {name for name, site in sites.items() if site.kind == "observed"} == {"x", "m", "y", "w"}
    assert {name: site.shape for name, site in sites.items() if site.plates and site.kind == "latent"} == {
        "u": (4,),
        "y <-> w": (4,),
    }
    assert {name for name in sites if name.startswith("y.")} == {
        "y.coefficients.m",
        "y.coefficients.x",
        "y.intercept",
        "y.likelihood.noise_variance",
        "y.loadings.y <-> w",
    }
    # A latent node without parents is standard normal, and the loading of the first end is positive.
    assert not any(name.startswith("u.") for name in sites)
    law = handlers.trace(handlers.seed(StructuralModel(RICH), 0)).get_trace(num_rows=2)
    assert isinstance(law["y.loadings.y <-> w"]["fn"], dist.HalfNormal)
    assert isinstance(law["w.loadings.y <-> w"]["fn"], dist.Normal)


def test_the_posterior_of_linear_mechanisms_is_bayesian_linear_regression():
    """The log density is quadratic: its slope is 0 at the conjugate posterior mean, its curvature the precision."""
    scales = {"z": 0.5, "x": 2.0}
    mechanism = LinearMechanism(
        {name: dist.Normal(0.0, scale) for name, scale in scales.items()},
        dist.Normal(1.0, 3.0),
        GaussianLikelihood(noise_variance=0.3),
    )
    model, table = StructuralModel(TRIANGLE, {"y": mechanism}), table_of(TRIANGLE, 20)
    design = np.stack([table["z"], table["x"], np.ones(20)], axis=1)
    prior = np.diag([1 / 0.5**2, 1 / 2.0**2, 1 / 3.0**2])
    precision = design.T @ design / 0.3 + prior
    mean = np.linalg.solve(precision, design.T @ table["y"] / 0.3 + prior @ [0.0, 0.0, 1.0])
    others = {name: jnp.asarray(0.7) for name in ("z.intercept", "x.intercept", "x.coefficients.z")}
    others |= {f"{name}.likelihood.noise_variance": jnp.asarray(0.9) for name in "zx"}

    def density(values):
        names = ("y.coefficients.z", "y.coefficients.x", "y.intercept")
        parameters = others | dict(zip(names, values, strict=True))
        return log_density(model, (table,), {}, parameters)[0]

    slope, curvature = jax.jit(lambda at: (jax.grad(density)(at), jax.hessian(density)(at)))(jnp.asarray(mean))
    np.testing.assert_allclose(slope, 0.0, atol=1e-10)
    np.testing.assert_allclose(-curvature, precision, rtol=1e-10)


@pytest.mark.slow
def test_the_mode_under_flat_priors_is_least_squares_at_each_node():
    """Priors of scale 1e4 change coefficients of order 1 by 1e-9; the optimizer stops when gradients are small."""
    flat = LinearMechanism(dist.Normal(0.0, 1e4), dist.Normal(0.0, 1e4), GaussianLikelihood(noise_variance=1.0))
    model, table = StructuralModel(TRIANGLE, dict.fromkeys("zxy", flat)), table_of(TRIANGLE, 20)
    found = kpp.MAP(progress=False).run(jax.random.key(0), model, {"table": table}).samples
    for node, parents in {"z": "", "x": "z", "y": "zx"}.items():
        design = np.stack([np.ones(20), *(table[name] for name in parents)], axis=1)
        expected = np.linalg.lstsq(design, table[node], rcond=None)[0]
        names = [f"{node}.intercept", *(f"{node}.coefficients.{name}" for name in parents)]
        np.testing.assert_allclose([found[name][0, 0] for name in names], expected, rtol=1e-5, atol=1e-6)


def path_products(graph, weights, cause, effect):
    """The sum over all directed paths of the products of the coefficients on them."""
    paths = nx.all_simple_paths(graph.digraph, cause, effect)
    return sum(np.prod([weights[edge] for edge in itertools.pairwise(path)]) for path in paths)


@pytest.mark.slow_variants("CausalDAG(z -> x; z -> y; x -> y)")
@pytest.mark.parametrize("graph", [graph for graph in GRAPHS if len(graph) > 2], ids=str)
def test_the_effect_in_a_linear_model_is_the_sum_of_path_products(graph):
    """Two interventions with the same key share all noise, so that the difference has no Monte Carlo error."""
    rng = np.random.default_rng(3)
    weights = {edge: rng.normal() for edge in graph.edges}
    model = StructuralModel(
        graph,
        {n: LinearMechanism({c: weights[c, n] for c in graph.parents(n)}, 0.0, loadings=0.4) for n in graph.nodes},
    )
    cause = graph.topological_order()[0]
    low, high = (
        handlers.seed(handlers.do(model, {cause: value}), jax.random.key(1))(num_rows=3) for value in (-0.5, 1.0)
    )
    for node in graph.nodes:
        expected = 1.5 * (1.0 if node == cause else path_products(graph, weights, cause, node))
        np.testing.assert_allclose(high[node] - low[node], expected, atol=1e-12)


@pytest.mark.slow
def test_draws_under_an_intervention_are_those_of_numpyros_handlers():
    model = StructuralModel(TRIANGLE)
    table = table_of(TRIANGLE, 6)
    sites = kpp.inference.inspect_sites(model, {"table": table})
    rng = np.random.default_rng(5)
    samples = {name: rng.uniform(0.5, 1.0, 2000) for name, site in sites.items() if site.kind == "latent"}
    found = model.draw(jax.random.key(0), samples, table, num_rows=2, do={"x": [0.0, 2.0]})
    assert found["y"].sizes == {"chain": 1, "draw": 2000, "row": 2}
    np.testing.assert_array_equal(found["x"], np.broadcast_to([0.0, 2.0], (1, 2000, 2)))
    # The effect of each draw is its coefficient times the difference, apart from noise of mean 0.
    effect = (found["y"].sel(row=1) - found["y"].sel(row=0))[0].to_numpy()
    slopes = np.polyfit(samples["y.coefficients.x"], effect, 1)
    error = np.sqrt(2 * (1 + 1) / 2000)
    assert abs(effect.mean() - 2 * samples["y.coefficients.x"].mean()) < 4 * error
    assert abs(slopes[0] - 2.0) < 4 * error / samples["y.coefficients.x"].std()
    other = Predictive(handlers.do(model, {"x": jnp.array([0.0, 2.0])}), samples)(jax.random.key(0), num_rows=2)
    assert stats.ks_2samp(found["y"].to_numpy()[0, :, 1], other["y"][:, 1]).pvalue > 1e-3
    # x keeps its own law as a site, and z is not affected by the intervention.
    assert stats.ks_2samp(found["z"].to_numpy()[0, :, 1], other["z"][:, 1]).pvalue > 1e-3


@pytest.mark.slow
def test_hidden_common_causes_give_the_covariance_of_their_loadings():
    graph = CausalDAG([("x", "y")], bidirected=[("x", "y")])
    model = StructuralModel(graph, {"x": fixed({}, **{"x <-> y": 0.8}), "y": fixed(0.5, 0.5, **{"x <-> y": -1.2})})
    found = model.draw(jax.random.key(0), {}, {"x": [0.0], "y": [0.0]}, num_rows=40_000)
    x_variance, cross = 1.0 + 0.8**2, 0.8 * -1.2
    expected = np.array(
        [
            [x_variance, 0.5 * x_variance + cross],
            [0.5 * x_variance + cross, 0.25 * x_variance + cross + 1.2**2 + 0.5],
        ]
    )
    # Standard errors of covariances are at most sqrt(2) * 2 / sqrt(n).
    empirical = np.cov(found["x"].to_numpy().ravel(), found["y"].to_numpy().ravel())
    np.testing.assert_allclose(empirical, expected, atol=4 * 2 * (2 / 40_000) ** 0.5)
    under_do = model.draw(jax.random.key(1), {}, {"x": [0.0], "y": [0.0]}, num_rows=40_000, do={"x": 2.0})
    # Without the arrow into x, y = 0.5 * 2 - 1.2 u + noise.
    assert abs(float(under_do["y"].mean()) - 1.0) < 4 * ((1.44 + 0.5) / 40_000) ** 0.5


@pytest.mark.slow_variants("counts", "labels")
@pytest.mark.parametrize(
    ("likelihood", "values", "log_prob"),
    [
        (BernoulliLikelihood(), [0, 1, 1, 0], lambda f, y: stats.bernoulli.logpmf(y, 1 / (1 + np.exp(-f)))),
        (PoissonLikelihood(), [0, 3, 1, 2], lambda f, y: stats.poisson.logpmf(y, np.exp(f))),
    ],
    ids=["labels", "counts"],
)
def test_labels_and_counts_have_their_own_likelihoods(likelihood, values, log_prob):
    x, graph = np.array([0.3, -1.0, 0.5, 1.5]), CausalDAG([("x", "y")])
    model = StructuralModel(graph, {"x": fixed({}), "y": LinearMechanism(0.7, 0.2, likelihood)})
    expected = stats.norm.logpdf(x).sum() + log_prob(0.2 + 0.7 * x, np.array(values)).sum()
    density = jax.jit(lambda table: log_density(model, (table,), {}, {})[0])({"x": x, "y": np.array(values)})
    np.testing.assert_allclose(density, expected, rtol=1e-10)
    drawn = model.draw(jax.random.key(0), {}, {"x": x, "y": values}, num_rows=50)["y"].to_numpy()
    assert np.all(likelihood.support(drawn))


def test_a_column_that_is_not_given_is_latent_and_can_be_drawn():
    model = StructuralModel(TRIANGLE, {"y": fixed({"x": 2.0, "z": -1.0}, 1e-12)})
    table = {"x": np.array([1.0, 2.0]), "z": np.array([0.0, 3.0])}
    values = handlers.seed(model, 0)(pd.DataFrame(table))
    np.testing.assert_allclose(values["y"], 2 * table["x"] - table["z"], atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"graph": {"rows": ["y"]}}, ValueError, "`graph` must not have a node 'rows'"),
        ({"graph": TRIANGLE, "mechanisms": {"t": fixed(0.0)}}, ValueError, r"`mechanisms` is given for \['t'\]"),
        ({"graph": TRIANGLE, "mechanisms": {"y": RBF()}}, TypeError, "`mechanisms` must hold mechanisms, got RBF"),
        ({"graph": TRIANGLE, "mechanisms": {"z": GAUSSIAN_PROCESS}}, ValueError, "'z', which has no parents"),
        (
            {"graph": TRIANGLE, "mechanisms": {"y": fixed({"x": 1.0})}},
            ValueError,
            r"`coefficients` must hold one value for each of \['z', 'x'\], got values for \['x'\]",
        ),
        (
            {"graph": TRIANGLE, "mechanisms": {"y": fixed(NORMAL.expand([2]))}},
            ValueError,
            r"`coefficients\['z'\]` must be one number or a prior for one, got a prior of shape \(2,\)",
        ),
        (
            {"graph": TRIANGLE, "mechanisms": {"y": GPMechanism(RBF([1.0, 1.0, 1.0]))}},
            ValueError,
            r"`mechanisms\['y'\].kernel` cannot be evaluated on `the parents`",
        ),
    ],
)
def test_mechanisms_that_do_not_fit_the_graph_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        StructuralModel(**arguments)


def test_a_causal_order_is_not_enough():
    with pytest.raises(CausalError, match="`graph` must be a causal graph, got a CausalOrder"):
        StructuralModel(kpp.causal.CausalOrder([["x"], ["y"]]))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "`num_rows` is needed without a column in `table`"),
        ({"table": [1.0]}, TypeError, "`table` must be a mapping or a data frame, got list"),
        ({"table": {"x": [1.0], "t": [1.0]}}, ValueError, r"must have columns among .* got \['t'\] too"),
        ({"table": {"x": [1.0], "y": [1.0, 2.0]}}, ValueError, "must have columns of one length"),
        ({"table": {"x": [np.nan]}}, ValueError, r"`table\['x'\]`"),
        ({"table": {"x": [1.0]}, "num_rows": 2}, ValueError, "`num_rows` must be the number of rows of `table`, 1"),
        ({"num_rows": 2, "training": {"x": [1.0]}}, ValueError, r"`training` must hold \['z', 'y'\] for .* 'y'"),
        ({"table": {"z": [2.0]}}, ValueError, r"`table\['z'\]` must hold values in the support"),
    ],
)
def test_tables_that_do_not_fit_are_refused(arguments, error, message):
    labels = LinearMechanism(likelihood=BernoulliLikelihood())
    model = handlers.seed(StructuralModel(TRIANGLE, {"y": GAUSSIAN_PROCESS, "z": labels}), 0)
    with pytest.raises(error, match=message):
        model(**arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"posterior": {}}, r"`posterior` must hold draws of the sites .* got none of \['z.intercept'"),
        ({"do": {"t": 1.0}}, "`do` must be one of"),
        ({"do": {"x": [1.0, 2.0, 3.0]}, "num_rows": 2}, r"`do\['x'\]` must be a number or have shape \(2,\)"),
        ({"training": {"x": [1.0]}, "num_rows": 0}, "`num_rows` must be an integer of at least 1|at least 1"),
    ],
)
def test_draws_that_cannot_be_made_are_refused(options, message):
    model, table = StructuralModel(TRIANGLE), table_of(TRIANGLE)
    sites = kpp.inference.inspect_sites(model, {"table": table})
    samples = {name: np.ones(3) for name, site in sites.items() if site.kind == "latent"}
    with pytest.raises(ValueError, match=message):
        model.draw(jax.random.key(0), **{"posterior": samples, "training": table} | options)


def test_a_likelihood_that_is_not_log_concave_is_refused_for_a_gaussian_process():
    with pytest.raises(ValueError, match="`likelihood` must be log-concave, got StudentTLikelihood"):
        GPMechanism(RBF(), kpp.gp.StudentTLikelihood())
