"""Gaussian-process mechanisms: GPRegression and GPClassification for each node, given training rows or without."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

from kpp.causal import CausalDAG
from kpp.gp import BernoulliLikelihood, GaussianLikelihood, LinearMean
from kpp.kernels import RBF, Linear
from kpp_models import GPClassification, GPMechanism, GPRegression, LinearMechanism, StructuralModel

GRAPH = CausalDAG([("x", "y"), ("z", "y")])
STANDARD = LinearMechanism({}, 0.0, GaussianLikelihood(noise_variance=1.0))
RNG = np.random.default_rng(0)
X = RNG.normal(size=(9, 2))
Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * RNG.normal(size=9)
NEW = RNG.normal(size=(4, 2))
KERNEL = RBF(jnp.array([0.9, 1.7]), 1.3)


def columns(x, y=None):
    return {"x": x[:, 0], "z": x[:, 1]} | ({} if y is None else {"y": y})


def model_of(mechanism):
    return StructuralModel(GRAPH, {"x": STANDARD, "z": STANDARD, "y": mechanism})


def law_at(model, x, training, center="mean"):
    """The center and the covariance of the node y at new rows."""

    @jax.jit
    def moments(training):
        seeded = handlers.seed(model, jax.random.key(0))
        law = handlers.trace(seeded).get_trace(columns(x), training=training)["y"]["fn"]
        return getattr(law, center), law.covariance_matrix

    return moments(training)


def posterior_at_new(model, data):
    return jax.jit(lambda data: model.posterior({}, data).moments(jnp.asarray(NEW), covariance=True))(data)


def density_of(model, *args, **data):
    return jax.jit(lambda args, data: log_density(model, args, data, {})[0])(args, data)


@pytest.mark.slow_variants("kernel1-0.4", "kernel2-mean2", "kernel0-0.4")
@pytest.mark.parametrize(
    ("kernel", "mean"), [(KERNEL, 0.4), (Linear(0.5), 0.4), (KERNEL, LinearMean(jnp.array([0.5, -1.0]), 0.2))]
)
def test_the_law_of_new_rows_is_the_posterior_of_gp_regression(kernel, mean):
    """Equal up to the rounding of another order of operations."""
    model = model_of(GPMechanism(kernel, GaussianLikelihood(noise_variance=0.05), mean))
    regression = GPRegression(kernel, noise_variance=0.05, mean=mean)
    resolved, data, _ = regression.prepare(X, Y)
    posterior = posterior_at_new(resolved, data)
    mean, covariance = law_at(model, NEW, columns(X, Y))
    np.testing.assert_allclose(mean, posterior.mean, rtol=1e-9)
    np.testing.assert_allclose(covariance, posterior.covariance + 0.05 * np.eye(4), rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_the_density_of_a_table_is_the_evidence_of_gp_regression():
    model = model_of(GPMechanism(KERNEL, GaussianLikelihood(noise_variance=0.05), 0.4))
    regression = GPRegression(KERNEL, noise_variance=0.05, mean=0.4)
    expected = density_of(regression.numpyro_model, jnp.asarray(X), jnp.asarray(Y))
    roots = -0.5 * np.sum(X**2) - X.size * 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(density_of(model, columns(X, Y)), expected + roots, rtol=1e-10)


@pytest.mark.slow
def test_labels_have_the_evidence_of_gp_classification():
    labels = (Y > 0).astype(float)
    model = model_of(GPMechanism(KERNEL, BernoulliLikelihood(), 0.1))
    classification = GPClassification(KERNEL, mean=0.1)
    resolved, data, _ = classification.prepare(X, labels)
    expected = density_of(resolved.numpyro_model, **data)
    roots = -0.5 * np.sum(X**2) - X.size * 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(density_of(model, columns(X, labels)), expected + roots, rtol=1e-8)
    posterior = posterior_at_new(resolved, data)
    mean, covariance = law_at(model, NEW, columns(X, labels), "loc")
    np.testing.assert_allclose(mean, posterior.mean, rtol=1e-8)
    np.testing.assert_allclose(covariance, posterior.covariance, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_the_columns_of_a_kernel_are_selected_by_name():
    """The order of the parents is that of the graph, not that of the table."""
    reverse = CausalDAG([("z", "y"), ("x", "y")])
    mechanism = GPMechanism(RBF(0.9).on("x") * RBF(1.7, 1.3).on("z"), GaussianLikelihood(noise_variance=0.05), 0.4)
    model = StructuralModel(reverse, {"x": STANDARD, "z": STANDARD, "y": mechanism})
    same = model_of(GPMechanism(KERNEL, GaussianLikelihood(noise_variance=0.05), 0.4))
    (found, _), (expected, _) = (law_at(each, NEW, columns(X, Y)) for each in (model, same))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_hidden_causes_shift_the_mean_at_the_rows_seen_and_at_new_ones():
    graph = CausalDAG(GRAPH.edges, bidirected=[("x", "y")])
    noise = GaussianLikelihood(noise_variance=0.05)
    mechanism = GPMechanism(KERNEL, noise, 0.4, loadings=0.7)
    root = LinearMechanism({}, 0.0, GaussianLikelihood(noise_variance=1.0), loadings=0.5)
    model = StructuralModel(graph, {"x": root, "z": STANDARD, "y": mechanism})
    hidden, new_hidden = RNG.normal(size=9), RNG.normal(size=4)
    conditioned = handlers.condition(model, {"x <-> y": new_hidden})
    mean, covariance = law_at(conditioned, NEW, columns(X, Y) | {"x <-> y": hidden})
    shifted = model_of(GPMechanism(KERNEL, noise, 0.4))
    expected_mean, expected_covariance = law_at(shifted, NEW, columns(X, Y - 0.7 * hidden))
    np.testing.assert_allclose(mean, expected_mean + 0.7 * new_hidden, rtol=1e-9)
    np.testing.assert_allclose(covariance, expected_covariance, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_draws_condition_on_the_draws_of_latent_parents():
    """With noise 1e-8 a new row at a parent's drawn value repeats the value of that row."""
    graph = CausalDAG([("u", "y")], latent=["u"])
    model = StructuralModel(graph, {"y": GPMechanism(RBF(1.0), GaussianLikelihood(noise_variance=1e-8), 0.0)})
    latent = np.array([[-1.0, 0.0, 1.5], [0.5, -2.0, 0.0]])
    table = {"y": np.array([0.3, -0.2, 1.0])}
    for row, place in enumerate([1, 2]):  # where each draw has u = 0
        found = model.draw(jax.random.key(0), {"u": latent}, table, num_rows=1, do={"u": 0.0})
        np.testing.assert_allclose(found["y"][0, row, 0], table["y"][place], atol=1e-3)


@pytest.mark.slow
def test_all_rows_of_a_draw_have_the_same_function():
    """Two new rows with equal parents differ only by noise, of variance 2e-8 here, although the function is unknown."""
    model = model_of(GPMechanism(RBF(1.0), GaussianLikelihood(noise_variance=1e-8), 0.0))
    table = columns(X[:2], Y[:2])
    found = model.draw(jax.random.key(3), {}, table, num_rows=2, do={"x": 4.0, "z": [-3.0, -3.0]})
    values = found["y"].to_numpy().ravel()
    assert abs(values[0] - values[1]) < 1e-3 < abs(values[0])
