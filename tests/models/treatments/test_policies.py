"""Effects of policies and of several treatments, against dense posteriors, enumeration and quadrature; refusals."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

import kpp
from kpp.causal import CausalDAG, CausalError, NotCoveredError
from kpp.data.tables import Schema
from kpp.gp import BernoulliLikelihood
from kpp.kernels import RBF
from kpp_models import GeneralizedGP, GPRegression, causal_effect
from kpp_models.treatments.options import Policies
from kpp_models.treatments.overlap import Assignment
from kpp_models.treatments.treatment import TreatmentColumn

KEY = jax.random.key(0)
GRAPH = CausalDAG([("z", "t"), ("z", "y"), ("t", "y"), ("s", "y"), ("t", "s")])
NAMES = {"treatment": "t", "outcome": "y"}
NUM_DRAWS = 2000  # in all tests of the fit, so that few programs are compiled
SCALES, NOISE = np.array([1.0, 1.5]), 0.09
RNG = np.random.default_rng(0)
Z = RNG.normal(size=40)
T = 0.7 * Z + RNG.normal(size=40)
TABLE = pd.DataFrame({"t": T, "z": Z, "y": np.sin(T) + T * Z / 2 + 0.3 * RNG.normal(size=40)})
HALF = {"half": lambda rows: rows["t"] / 2}


@pytest.fixture(scope="module")
def fit():
    """A Gaussian process with known hyperparameters: the posterior is exact."""
    model = GPRegression(RBF(jnp.asarray(SCALES), 4.0), noise_variance=NOISE)
    return model.fit(KEY, TABLE[["t", "z"]], TABLE["y"], inference=kpp.MAP(progress=False), num_prior_samples=0)


def kernel(first, second):
    return 4.0 * np.exp(-0.5 * (((first[:, None] - second[None]) / SCALES) ** 2).sum(-1))


def averages(*settings):
    """Means and covariances of averages over rows, of the posterior of the fixture, by dense matrices of NumPy.

    A setting is the treatments of the rows, (m, 40), and the chances of the m treatments of each row.
    """
    data = TABLE[["t", "z"]].to_numpy()
    gram = kernel(data, data) + NOISE * np.eye(len(data))
    points = [np.stack([t, np.broadcast_to(Z, t.shape)], -1).reshape(-1, 2) for t, _ in settings]
    loads = [np.repeat(chances, 40) / 40 for _, chances in settings]
    every = np.stack([load @ kernel(each, data) for load, each in zip(loads, points, strict=True)])
    both = [*zip(loads, points, strict=True)]
    prior = np.array([[load @ kernel(x, z) @ other for other, z in both] for load, x in both])
    return every @ np.linalg.solve(gram, TABLE["y"]), prior - every @ np.linalg.solve(gram, every.T)


@pytest.mark.slow
def test_policies_have_the_law_of_averages_of_the_posterior(fit):
    """2000 draws: means have standard errors of 2.2 % of the largest sd, and covariances of 3.2 % of its square.

    Variances are exact; the distribution is compared with a rule of 20 nodes, of which kpp has 8.
    """
    policies = {**HALF, "by chance": lambda rows: dist.Normal(rows["z"].to_numpy() / 2, 0.5), "at one": 1.0}
    options = {"bootstrap": False, "num_draws": NUM_DRAWS}
    effect = causal_effect(KEY, fit, GRAPH, **NAMES, policies=policies, shift=-0.5, **options)
    assert effect.dataset["treatment"].to_numpy().tolist() == ["observed", "shift", "half", "by chance", "at one"]
    nodes, chances = np.polynomial.hermite_e.hermegauss(20)
    by_chance = Z / 2 + 0.5 * nodes[:, None], chances / chances.sum()
    certain = [(t[None], np.ones(1)) for t in (T, T - 0.5, T / 2, np.ones(40))]
    mean, covariance = averages(*certain[:3], by_chance, certain[3])
    draws = effect.draws.to_numpy()[0]
    np.testing.assert_allclose(draws.mean(0), mean, atol=4 * 0.022 * np.sqrt(covariance.max()))
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=4 * 0.032 * covariance.max())
    exact = effect.dataset["variance_parts"].sel(part="function").to_numpy()
    np.testing.assert_allclose(exact, np.diag(covariance), rtol=1e-5)
    codes = effect.dataset["treatment_code"].to_numpy()
    np.testing.assert_allclose(codes, [T.mean(), T.mean() - 0.5, T.mean() / 2, Z.mean() / 2, 1.0], atol=1e-12)
    contrast, loads = effect.contrast("shift", "observed"), np.array([-1.0, 1.0, 0.0, 0.0, 0.0])
    sd = np.sqrt(loads @ covariance @ loads)
    assert float(contrast.mean()) == pytest.approx(loads @ mean, abs=4 * 0.022 * sd)
    assert float(contrast.std()) == pytest.approx(sd, rel=4 * 0.016)


def column(values, names=("t", "z"), **schema):
    codes = np.column_stack([values, Z])
    return TreatmentColumn(codes, Schema(names, **schema), 0)


LEVELS = RNG.choice(3, size=40).astype(float)
DRUGS = pd.DataFrame({"t": np.array(["a", "b", "c"])[LEVELS.astype(int)], "z": Z})
DRUG = column(LEVELS, levels={"t": ("a", "b", "c")})


def test_levels_have_chances():
    """Against a draw of each row by hand: the expected code is the sum of code times chance."""
    chance = 1 / (1 + np.exp(-Z))
    policies = {
        "tilted": lambda rows: {"c": 1 / (1 + np.exp(-rows["z"])), "a": 1 - 1 / (1 + np.exp(-rows["z"]))},
        "mixed": {"a": 0.2, "b": 0.5, "c": 0.3},
        "by z": lambda rows: np.where(rows["z"] > 0, "b", "a"),
        "all c": "c",
    }
    found = Policies.read(policies, DRUG, DRUGS)
    expected = np.stack([2 * chance, np.full(40, 1.1), (Z > 0).astype(float), np.full(40, 2.0)])
    np.testing.assert_allclose(found.expect(found.values), expected)
    np.testing.assert_allclose(found.chances.sum(axis=1), 1.0)


def test_a_treatment_is_common_where_similar_rows_have_it():
    """t = z + N(0, 1): a shift by 2 keeps the rows whose residual is below the quantile of 99 %, 2.33, minus 2."""
    rng = np.random.default_rng(1)
    z, noise = rng.normal(size=(2, 4000))
    of_numbers = Assignment(z + noise, z[:, None], Schema(("z",)), is_number=True)
    share = of_numbers.is_common((z + noise + 2.0)[None]).mean()
    assert share == pytest.approx(0.63 - 0.01, abs=0.04)  # standard error of the quantile 0.06, times the density 0.38
    t = (rng.uniform(size=4000) < 1 / (1 + np.exp(-2 * z))).astype(float)
    of_levels = Assignment(t, z[:, None], Schema(("z",)), is_number=False)
    common = of_levels.is_common(np.stack([t, np.ones(4000)]))
    # Probabilities of at least 5 % are those with z > -log(19) / 2; the slope of the regression is about 2.
    np.testing.assert_array_equal(
        common[1][abs(z + np.log(19) / 2) > 0.3], (z > -np.log(19) / 2)[abs(z + np.log(19) / 2) > 0.3]
    )
    assert common[0].mean() > 0.95


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (lambda rows: np.full(len(rows), np.nan), r"finite numbers as treatments, got \['nan'\]"),
        (
            lambda rows: np.where(np.arange(len(rows)) > 0, rows["t"], np.inf),
            r"finite numbers as treatments, got \['inf'\]",
        ),
        (lambda rows: np.ones(3), r"one treatment or one for each row, shape \(40,\), got shape \(3,\)"),
        (lambda rows: np.ones((40, 2)), r"got shape \(40, 2\)"),
        ("much", r"finite numbers as treatments, got \['much'\]"),
        (lambda rows: rows["age"], r"treatment and the adjustment set, \['t', 'z'\]: KeyError"),
        (dist.Normal(np.zeros(3), 1.0), r"a distribution of shape \(\) or \(40,\)"),
        (dist.MultivariateNormal(np.zeros(2), np.eye(2)), r"got the shape \(2,\)"),
        ({0.0: 0.5, 1.0: 0.6}, "chances of at least 0 that sum to 1"),
        ({0.0: np.nan, 1.0: 1.0}, "chances of at least 0 that sum to 1"),
    ],
)
def test_policies_that_are_refused(policy, message):
    with pytest.raises(ValueError, match=message):
        Policies.read({"bad": policy}, column(T), TABLE[["t", "z"]])


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("d", r"values that rows have, \['a', 'b', 'c'\], as treatments, got \['d'\]"),
        ({"a": 0.5, "e": 0.5}, r"got \['e'\]"),
        (dist.Normal(0.0, 1.0), "a treatment of numbers, .* the levels of a treatment have chances"),
        (lambda rows: rows["t"] + 1.0, "could not be computed"),
    ],
)
def test_policies_of_levels_that_are_refused(policy, message):
    with pytest.raises(ValueError, match=message):
        Policies.read({"bad": policy}, DRUG, DRUGS)


def test_questions_about_policies_that_are_refused(fit):
    with pytest.raises(ValueError, match="without 'observed', `at`, `by_row` and `doubly_robust`"):
        causal_effect(KEY, fit, GRAPH, **NAMES, policies={"observed": 1.0})
    with pytest.raises(ValueError, match="without 'observed', `at`, `by_row` and `doubly_robust`"):
        causal_effect(KEY, fit, GRAPH, **NAMES, shift=1.0, at=[0.0])
    with pytest.raises(TypeError, match="`policies` must be a dictionary"):
        causal_effect(KEY, fit, GRAPH, **NAMES, policies=[1.0])
    with pytest.raises(ValueError, match="`shift` must be left out: .* a policy"):
        causal_effect(KEY, fit, GRAPH, **NAMES, shift=1.0, policies={"shift": 1.0})
    with pytest.raises(CausalError, match="covariates that the treatment does not change, unlike .'z'"):
        causal_effect(KEY, fit, CausalDAG([("t", "z"), ("t", "y")]), **NAMES, shift=1.0)
    hidden = CausalDAG([("t", "z"), ("z", "y")], bidirected=[("t", "y")])
    with pytest.raises(ValueError, match="`policies` must be left out here: no adjustment set"):
        causal_effect(KEY, TABLE, hidden, **NAMES, policies=HALF)
    drugs = DRUGS.assign(y=Z)
    graph = CausalDAG([("z", "t"), ("z", "y")])
    with pytest.raises(ValueError, match="could not be computed"):
        causal_effect(KEY, drugs, graph, **NAMES, shift=1.0)


def test_a_policy_of_a_treatment_without_effect_changes_nothing():
    effect = causal_effect(KEY, TABLE, CausalDAG([("z", "t"), ("z", "y")]), **NAMES, policies=HALF)
    np.testing.assert_array_equal(effect.contrast("half", "observed"), 0.0)
    settings = [(0.0, 1.0), (1.0, 0.0)]
    both = causal_effect(
        KEY, TABLE, CausalDAG([("z", "t")], nodes=["y"]), treatment=("t", "z"), outcome="y", at=settings
    )
    np.testing.assert_array_equal(both.contrast(*settings), 0.0)


@pytest.mark.slow
def test_a_policy_that_leaves_the_data_warns(fit):
    policies = {**HALF, "by chance": dist.Normal(0.0, 0.5), "at nine": 9.0}  # as many treatments as above
    with pytest.warns(UserWarning) as caught:
        effect = causal_effect(
            KEY, fit, GRAPH, **NAMES, policies=policies, shift=-0.5, bootstrap=False, num_draws=NUM_DRAWS
        )
    text = " ".join(str(each.message) for each in caught)
    assert "a policy leaves the data" in text and "0% under 'at nine'" in text and "100% under 'half'" in text
    assert effect.dataset["effective_rows"].to_numpy()[[2, 4]].tolist() == [40.0, 0.0]
    # The prior has the standard deviation 2 there.
    assert float(effect.draws.sel(treatment="at nine").std()) > 10 * float(effect.draws.sel(treatment="half").std())


@pytest.mark.nightly
def test_policies_on_the_probability_of_a_label():
    """The mean response is integrated by Gauss-Hermite, and averaged over rows and chances by hand."""
    t = (Z > RNG.normal(size=40)).astype(float)
    table = pd.DataFrame({"t": t, "z": Z})
    y = RNG.uniform(size=40) < 1 / (1 + np.exp(0.5 - 1.5 * t - Z))
    model = GeneralizedGP(RBF(jnp.asarray(SCALES), 2.0), BernoulliLikelihood())
    fitted = model.fit(KEY, table, y.astype(float), inference=kpp.MAP(progress=False), num_prior_samples=0)
    chance = 1 / (1 + np.exp(-Z))
    policies = {"by z": lambda rows: (rows["z"] > 0).astype(float), "by chance": {1.0: chance, 0.0: 1 - chance}}
    effect = causal_effect(KEY, fitted, GRAPH, **NAMES, policies=policies, bootstrap=False, num_draws=4000)
    process = fitted.function_posterior()
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)

    def risks(treatment):
        points = np.column_stack([treatment, Z])
        mean, sd = np.asarray(process.mean(points))[0, 0], np.sqrt(np.asarray(process.variance(points))[0, 0])
        return (1 / (1 + np.exp(-(mean[:, None] + sd[:, None] * nodes)))) @ weights / weights.sum()

    expected = [risks(t), risks(Z > 0), chance * risks(np.ones(40)) + (1 - chance) * risks(np.zeros(40))]
    error = effect.draws.std(("chain", "draw")).to_numpy() / np.sqrt(4000)
    found = effect.draws.mean(("chain", "draw")).to_numpy()
    assert (abs(found - np.mean(expected, axis=1)) < 4 * error).all()


JOINT = CausalDAG([("z", "t"), ("z", "y"), ("t", "y"), ("z", "s"), ("t", "s"), ("s", "y")])
BOTH = {"treatment": ("t", "s"), "outcome": "y"}


@pytest.mark.slow
def test_several_treatments_are_set_together():
    """Against dense matrices, and the effective rows against weights that are products of two regressions."""
    s = (RNG.uniform(size=40) < 1 / (1 + np.exp(-Z - T))).astype(float)
    table = TABLE.assign(s=s)
    model = GPRegression(RBF(jnp.asarray([1.0, 1.0, 1.5]), 4.0), noise_variance=NOISE)
    fitted = model.fit(KEY, table[["t", "s", "z"]], table["y"], inference=kpp.MAP(progress=False), num_prior_samples=0)
    settings = [(1.0, 1), (0.0, 0)]
    with warnings.catch_warnings(action="ignore"):
        effect = causal_effect(KEY, fitted, JOINT, **BOTH, at=settings, bootstrap=False, num_draws=NUM_DRAWS)
    points = [np.column_stack([np.full(40, t), np.full(40, s), Z]) for t, s in settings]

    def gram(first, second):
        return 4.0 * np.exp(-0.5 * (((first[:, None] - second[None]) / [1.0, 1.0, 1.5]) ** 2).sum(-1))

    data = table[["t", "s", "z"]].to_numpy()
    noisy = gram(data, data) + NOISE * np.eye(40)
    load = gram(data, points[0]).mean(1) - gram(data, points[1]).mean(1)
    prior = gram(points[0], points[0]).mean() + gram(points[1], points[1]).mean() - 2 * gram(*points).mean()
    mean, variance = load @ np.linalg.solve(noisy, table["y"]), prior - load @ np.linalg.solve(noisy, load)
    contrast = effect.contrast((1, 1.0), (0, 0))
    assert float(contrast.mean()) == pytest.approx(mean, abs=4 * np.sqrt(variance / NUM_DRAWS))
    assert float(contrast.std()) == pytest.approx(np.sqrt(variance), rel=4 * 0.016)
    assert effect.dataset["treatment"].to_numpy().tolist() == ["1, 1", "0, 0"]
    of_t = Assignment(T, Z[:, None], Schema(("z",)), is_number=True).weights(np.array([1.0, 0.0]))
    of_s = Assignment(s, table[["t", "z"]].to_numpy(), Schema(("t", "z")), is_number=False).weights(
        np.array([1.0, 0.0])
    )
    weights = of_t * of_s
    found = effect.dataset["effective_rows"].to_numpy()
    np.testing.assert_allclose(found, weights.sum(1) ** 2 / (weights**2).sum(1), rtol=1e-8)
    assert effect.dataset.attrs["estimand"] == "P(y | do(t, s)) = sum_{z} P(y | t, s, z) P(z)"
    for change, message in [
        ({"at": None}, r"`at` must hold settings of all treatments, \(t, s\)"),
        ({"at": [(1.0,)]}, "`at` must hold settings of all treatments"),
        ({"rows": "treated"}, "`rows` must be a mask"),
        ({"derivative": True}, "`derivative` needs a treatment of numbers"),
    ]:
        with pytest.raises(ValueError, match=message), warnings.catch_warnings(action="ignore"):
            causal_effect(
                KEY, fitted, JOINT, **BOTH, **{"at": settings, "num_draws": NUM_DRAWS, "bootstrap": False, **change}
            )
    with pytest.raises(ValueError, match="a hidden confounder|two levels"):
        effect.with_hidden_confounder(KEY, share_of_treatment=dist.Beta(1, 9), share_of_outcome=dist.Beta(1, 9))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"treatment": ("t", "t")}, "at least two different names"),
        ({"treatment": ("t",)}, "at least two different names"),
        ({"treatment": ("t", "s"), "policies": HALF}, "without policies"),
        ({"treatment": ("t", "s"), "graph": [JOINT, JOINT]}, "under one graph, and"),
    ],
)
def test_several_treatments_that_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        causal_effect(KEY, TABLE, change.pop("graph", JOINT), **{**BOTH, **change})


def test_treatments_that_the_graph_lacks_or_does_not_identify():
    with pytest.raises(CausalError, match="'q'"):
        causal_effect(KEY, TABLE, JOINT, treatment=("t", "q"), outcome="y", at=[(0, 0)])
    hidden = CausalDAG([("z", "t"), ("t", "s"), ("s", "y")], bidirected=[("t", "y"), ("s", "y")])
    with pytest.raises(NotCoveredError, match="not identif"):
        causal_effect(KEY, TABLE.assign(s=Z), hidden, **BOTH, at=[(0, 0)])


@pytest.mark.nightly
def test_two_treatments_from_a_table():
    """y = 2 a + b (1 + a) + z: setting both to 1 instead of 0 has the effect 4."""
    rng = np.random.default_rng(2)
    z = rng.normal(size=150)
    a = (rng.uniform(size=150) < 1 / (1 + np.exp(-z))).astype(float)
    b = np.where(rng.uniform(size=150) < 0.5, "low", "high")
    y = 2 * a + (b == "high") * (1 + a) + z + 0.3 * rng.normal(size=150)
    table = pd.DataFrame({"t": a, "s": b, "z": z, "y": y})
    options = {**BOTH, "at": [(1, "high"), (0, "low")], "inference": kpp.MAP(progress=False)}
    effect = causal_effect(KEY, table, JOINT, **options)
    contrast = effect.contrast((1, "high"), (0, "low"))
    assert abs(float(contrast.mean()) - 4.0) < 3 * float(contrast.std())
    placebo = effect.refute(KEY, "subset").contrast((1, "high"), (0, "low"))
    assert abs(float(placebo.mean()) - 4.0) < 3 * float(placebo.std())
