"""Joint draws over rows and treatments, and averages of mean responses, against dense covariances and Monte Carlo."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr

import kpp
from kpp.causal import CausalDAG
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.gp import BernoulliLikelihood, OrdinalLikelihood, PoissonLikelihood, StudentTLikelihood
from kpp.kernels import RBF, Linear, Matern32
from kpp_models import CausalEffect, GeneralizedGP, causal_effect
from kpp_models.treatments.averaging.responses import draw_over_grid, make_grid
from oracles.programs import gram, moments

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(4, 2))
VALUES = np.array([-1.0, 2.0])
KERNELS = {
    "product": RBF(jnp.array([0.7, 1.4]), 1.3),
    "sum of products": RBF(jnp.array([0.7, 1.4])) + 0.5 * Linear(jnp.array([0.5, 1.0])),
    "no product": Matern32(jnp.array([0.7, 1.4])),
}
GRAPH = CausalDAG([("z", "t"), ("z", "y"), ("t", "y")])
NAMES = {"treatment": "t", "outcome": "y"}
KERNEL = RBF(jnp.array([1.0, 1.5]), 2.0)


def posterior(kernel, points):
    root = np.linalg.cholesky(np.linalg.inv(np.asarray(gram(kernel, points)) + 0.3 * np.eye(len(points))))
    return GPPosterior(RKHSFunction(kernel, points, np.sin(np.arange(len(points))), 0.4), root)


@pytest.mark.slow_variants("product-rows", "sum of products-others", "no product-others")
@pytest.mark.parametrize(
    ("name", "points"), [("product", "rows"), ("sum of products", "others"), ("no product", "others")]
)
def test_joint_draws_have_the_law_of_the_posterior(name, points):
    """20,000 draws: covariances have standard errors of at most 1 % of the largest variance."""
    known = {"rows": ROWS, "others": RNG.normal(size=(4, 2))}[points]
    process = posterior(KERNELS[name], known)
    grid = make_grid(process.mean.points, ROWS, 0, VALUES)
    draws = eqx.filter_jit(draw_over_grid)(KEY, process, jnp.asarray(ROWS), 0, jnp.asarray(VALUES), grid, 20_000)
    every = np.concatenate([np.column_stack([np.full(4, value), ROWS[:, 1]]) for value in VALUES])
    mean, covariance = map(np.asarray, moments(process, every))
    flat = np.asarray(draws).reshape(20_000, -1)
    np.testing.assert_allclose(flat.mean(0), mean, atol=4 * 0.0071 * np.sqrt(covariance.max()))
    np.testing.assert_allclose(np.cov(flat.T), covariance, atol=4 * 0.01 * covariance.max())


def simulate(seed: int, num_rows: int = 40) -> pd.DataFrame:
    """A treatment of two levels and labels, whose log-odds are 1.5 t + z - 0.5."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=num_rows)
    t = (rng.uniform(size=num_rows) < 1 / (1 + np.exp(-z))).astype(float)
    y = rng.uniform(size=num_rows) < 1 / (1 + np.exp(0.5 - 1.5 * t - z))
    return pd.DataFrame({"z": z, "t": t, "y": y.astype(float)})


TABLE = simulate(0)
MODELS = {
    "counts": (GeneralizedGP(KERNEL, PoissonLikelihood()), np.exp),
    "levels": (
        GeneralizedGP(KERNEL, OrdinalLikelihood(gaps=[1.0]), latent="inducing", num_inducing=8),
        lambda f: 1 / (1 + np.exp(-f)) + 1 / (1 + np.exp(1 - f)),
    ),
}


@pytest.mark.nightly_variants("levels")
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_effect_is_the_average_response(name):
    """Joint draws by the whole covariance matrix, through the inverse link in NumPy; 2000 draws on each side."""
    model, response = MODELS[name]
    fit = model.fit(KEY, TABLE[["t", "z"]], TABLE["y"], inference=kpp.MAP(progress=False), num_prior_samples=0)
    effect = causal_effect(KEY, fit, GRAPH, **NAMES, bootstrap=False, num_draws=2000)
    process = fit.function_posterior()
    every = np.concatenate([np.column_stack([np.full(len(TABLE), t), TABLE["z"]]) for t in (0.0, 1.0)])
    mean, covariance = (np.asarray(part)[0, 0] for part in moments(process, every))
    values, vectors = np.linalg.eigh(covariance)
    white = np.random.default_rng(0).normal(size=(2000, len(every)))
    latent = mean + white @ (vectors * np.sqrt(np.maximum(values, 0))).T
    known = response(latent).reshape(2000, 2, -1).mean(-1)
    found = effect.draws.to_numpy()[0]
    spread = known.std(0)
    np.testing.assert_allclose(found.mean(0), known.mean(0), atol=4 * 0.032 * spread.max())
    np.testing.assert_allclose(np.cov(found.T), np.cov(known.T), atol=4 * 0.045 * spread.max() ** 2)
    parts = effect.dataset["variance_parts"]
    np.testing.assert_allclose(parts.sel(part="function"), spread**2, rtol=0.2)
    np.testing.assert_allclose(parts.sel(part="hyperparameters and covariates"), 0.0, atol=1e-20)


@pytest.fixture
def effect():
    """Draws of two probabilities, of an outcome that is not a number with noise."""
    draws = np.random.default_rng(0).uniform(0.1, 0.9, size=(1, 50, 2))
    return CausalEffect(xr.Dataset({"effect": (("chain", "draw", "treatment"), draws)}, {"treatment": [0.0, 1.0]}))


def test_ratios_of_risks_and_odds(effect):
    a, b = (effect.draws.sel(treatment=value, drop=True) for value in (1.0, 0.0))
    np.testing.assert_allclose(effect.contrast(1.0, 0.0, measure="ratio"), a / b)
    np.testing.assert_allclose(effect.contrast(1.0, 0.0, measure="odds ratio"), a / (1 - a) / (b / (1 - b)))
    with pytest.raises(ValueError, match="`measure`"):
        effect.contrast(1.0, 0.0, measure="other")
    with pytest.raises(ValueError, match="a ratio needs expected outcomes between 0 and inf"):
        CausalEffect(effect.dataset - 5.0).contrast(1.0, 0.0, measure="ratio")


def test_what_needs_a_linear_outcome_is_refused(effect):
    with pytest.raises(ValueError, match="the outcome a number with noise"):
        effect.with_hidden_confounder(KEY, share_of_treatment=dist.Beta(1, 9), share_of_outcome=dist.Beta(1, 9))
    with pytest.raises(ValueError, match="derivative=True"):
        effect.average_derivative  # noqa: B018


REFUSED = {
    "a type": ({"likelihood": "poisson"}, TypeError, "`likelihood`"),
    "not log-concave": ({"likelihood": StudentTLikelihood()}, ValueError, "must be log-concave"),
    "levels": ({"data": TABLE.assign(y="yes")}, ValueError, "`outcome` must be a column of numbers or booleans"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_outcomes_are_refused_by_name(name):
    changes, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        causal_effect(KEY, changes.pop("data", TABLE), GRAPH, **NAMES, **changes)


@pytest.mark.nightly
def test_a_table_of_labels_is_enough():
    table = simulate(1, 60)
    found = causal_effect(KEY, table.assign(y=table["y"] > 0), GRAPH, **NAMES)
    same = causal_effect(KEY, table, GRAPH, **NAMES, likelihood=BernoulliLikelihood())
    np.testing.assert_allclose(found.draws, same.draws)
    assert 0 < float(found.draws.min()) < float(found.draws.max()) < 1
    risks = [np.mean(1 / (1 + np.exp(0.5 - 1.5 * t - table["z"]))) for t in (0.0, 1.0)]
    assert abs(float(found.contrast(1.0, 0.0).mean()) - np.diff(risks).item()) < 3 * float(found.contrast(1, 0).std())
    placebo = found.refute(KEY, "placebo").contrast(1.0, 0.0)
    assert abs(float(placebo.mean())) < 3 * float(placebo.std())


@pytest.mark.nightly
def test_the_average_derivative_of_a_table():
    """A dose with log-rate (dose + z) / 2: the derivative of the rate is half the rate, on average."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=60)
    dose = 0.7 * z + rng.normal(size=60)
    rate = np.exp((dose + z) / 2)
    table = pd.DataFrame({"z": z, "t": dose, "y": rng.poisson(rate).astype(float), "x": dose + z + rng.normal(size=60)})
    options = {"derivative": True, "inference": kpp.MAP(progress=False)}
    found = causal_effect(KEY, table, GRAPH, **NAMES, likelihood=PoissonLikelihood(), at=[0.0], **options)
    slope = found.average_derivative
    assert abs(float(slope.mean()) - rate.mean() / 2) < 3 * float(slope.std())
    graph = CausalDAG([("z", "t"), ("z", "x"), ("t", "x")])
    linear = causal_effect(KEY, table, graph, treatment="t", outcome="x", at=[-1.0, 1.0], **options)
    assert abs(float(linear.average_derivative.mean()) - 1) < 3 * float(linear.average_derivative.std())
    half = linear.contrast(1.0, -1.0) / 2
    assert float(linear.average_derivative.mean()) == pytest.approx(float(half.mean()), abs=0.15)
