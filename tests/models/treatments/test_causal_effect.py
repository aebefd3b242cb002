"""Effects from one table: known simulations, subgroups, checks of robustness, and what is refused."""

from __future__ import annotations

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import kpp
from kpp.causal import CausalDAG, CausalError, NotCoveredError, identify
from kpp.data.tables import Schema
from kpp.kernels import RBF
from kpp_models import GPRegression, causal_effect, effective_rows
from kpp_models.treatments.options import EffectOptions
from kpp_models.treatments.question import EffectQuestion
from kpp_models.treatments.study import EffectStudy

KEY = jax.random.key(0)
GRAPH = CausalDAG([("z", "t"), ("z", "y"), ("t", "y")])
NAMES = {"treatment": "t", "outcome": "y"}
NUM_DRAWS = 20_000  # in all tests of the fit, so that few programs are compiled


def simulate(seed: int, num_rows: int = 120) -> pd.DataFrame:
    """A confounded treatment of two levels, with the effect 2 + z / 2."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=num_rows)
    t = (rng.uniform(size=num_rows) < 1 / (1 + np.exp(-z))).astype(float)
    y = 2 * t + z + 0.5 * t * z + 0.5 * rng.normal(size=num_rows)
    return pd.DataFrame({"y": y, "z": z, "t": t, "other": rng.normal(size=num_rows)})


TABLE = simulate(0)


@pytest.fixture(scope="module")
def fit():
    """A Gaussian process with known hyperparameters: the posterior is exact."""
    model = GPRegression(RBF(jnp.array([1.0, 1.5]), 4.0), noise_variance=0.25)
    return model.fit(KEY, TABLE[["t", "z"]], TABLE["y"], inference=kpp.MAP(progress=False), num_prior_samples=0)


@pytest.mark.slow
def test_the_effect_is_the_average_of_the_posterior_over_the_rows(fit):
    """Without a bootstrap: mean and variance in closed form; 20,000 draws have standard errors of 0.7 % of the sd."""
    effect = causal_effect(KEY, fit, GRAPH, **NAMES, bootstrap=False, num_draws=NUM_DRAWS)
    process = fit.function_posterior()
    every = np.concatenate([np.column_stack([np.full(len(TABLE), t), TABLE["z"]]) for t in (0.0, 1.0)])
    loads = np.kron([[-1.0, 1.0]], np.full(len(TABLE), 1 / len(TABLE)))
    moments = eqx.filter_jit(lambda law: (law.mean(every), law.covariance(every, every)))(process)
    mean, covariance = (np.asarray(part)[0, 0] for part in moments)
    mean, variance = loads @ mean, loads @ covariance @ loads.T
    contrast = effect.contrast(1.0, 0.0)
    assert float(contrast.mean()) == pytest.approx(mean.item(), abs=4 * np.sqrt(variance.item() / NUM_DRAWS))
    assert float(contrast.std()) == pytest.approx(np.sqrt(variance.item()), rel=0.03)
    parts = effect.dataset["variance_parts"]
    np.testing.assert_allclose(parts.sel(part="hyperparameters and covariates"), 0.0, atol=1e-20)
    assert effect.dataset.attrs["uncertainty"].endswith("the effect is that on these rows")
    assert "an interval is too narrow" in repr(effect)


@pytest.mark.slow
def test_the_bootstrap_adds_the_uncertainty_of_the_covariates(fit):
    """The variance of a Dirichlet average of g(z) is Var(g) / (n + 1)."""
    effect = causal_effect(KEY, fit, GRAPH, **NAMES, num_draws=NUM_DRAWS)
    rows = np.column_stack([np.ones(len(TABLE)), TABLE["z"]])
    spread = np.var(np.asarray(fit.function()(rows))[0, 0]) / (len(TABLE) + 1)
    found = effect.dataset["variance_parts"].sel(part="hyperparameters and covariates").sel(treatment=1.0)
    assert float(found) == pytest.approx(spread, rel=0.1)  # 20,000 draws: a standard error of 1 %
    assert effect.dataset.attrs["uncertainty"].endswith("the effect is that in the population")


@pytest.mark.slow
def test_subgroups_average_over_their_own_rows(fit):
    high = TABLE["z"].to_numpy() > 0
    options = {**NAMES, "bootstrap": False, "num_draws": NUM_DRAWS}
    groups = [causal_effect(KEY, fit, GRAPH, rows=rows, **options) for rows in (high, ~high)]
    every = causal_effect(KEY, fit, GRAPH, **options).contrast(1.0, 0.0).mean()
    of_high, of_low = (group.contrast(1.0, 0.0).mean() for group in groups)
    assert of_high > of_low + 0.4  # the effect is 2 + z / 2
    assert float(high.mean() * of_high + (~high).mean() * of_low) == pytest.approx(float(every), abs=0.03)


@pytest.mark.slow_variants("treated-1.0")
@pytest.mark.parametrize(("name", "level"), [("treated", 1.0), ("untreated", 0.0)])
def test_the_effect_on_the_treated_and_on_the_untreated(fit, name, level):
    """Against the average of the posterior mean over these rows: a standard error of 0.7 % of the sd."""
    options = {**NAMES, "bootstrap": False, "num_draws": NUM_DRAWS}
    contrast = causal_effect(KEY, fit, GRAPH, rows=name, **options).contrast(1.0, 0.0)
    z = TABLE.loc[TABLE["t"] == level, "z"]
    means = [np.asarray(fit.function()(np.column_stack([np.full(len(z), t), z])))[0, 0].mean() for t in (0.0, 1.0)]
    assert float(contrast.mean()) == pytest.approx(means[1] - means[0], abs=4 * float(contrast.std()) / NUM_DRAWS**0.5)


def test_who_is_treated_must_be_known(fit):
    with pytest.raises(ValueError, match="`rows` must be one of .*did you mean 'treated'"):
        causal_effect(KEY, fit, GRAPH, **NAMES, rows="treatd")
    doses = {"treatment": "z", "outcome": "y"}
    with pytest.raises(ValueError, match="`rows` must be a mask where .* got 'treated' for 'z' with 120 values"):
        causal_effect(KEY, TABLE, CausalDAG([("y", "z"), ("z", "t")]), **doses, rows="treated")
    drugs = TABLE.assign(t=np.where(TABLE["t"] == 1, "drug", "placebo"))  # the later level is not the treatment
    with pytest.raises(ValueError, match="`rows` must be a mask where .* got 'untreated' for 't' with 2 values"):
        causal_effect(KEY, drugs, CausalDAG([("y", "t")]), **NAMES, rows="untreated")


@pytest.mark.nightly
def test_a_table_and_a_graph_are_enough():
    effect = causal_effect(KEY, TABLE, GRAPH, **NAMES)
    contrast = effect.contrast(1.0, 0.0)
    truth = 2 + 0.5 * TABLE["z"].mean()
    assert abs(float(contrast.mean()) - truth) < 3 * float(contrast.std())
    assert effect.dataset.attrs["adjustment"] == ["z"]
    assert list(effect.summary().columns) == ["mean", "sd", "5 %", "95 %", "effective_rows"]
    naive = TABLE.groupby("t")["y"].mean().diff().iloc[-1]
    assert naive - truth > 0.5  # the confounded difference is far away


@pytest.mark.nightly
def test_refutations():
    effect = causal_effect(KEY, TABLE, GRAPH, **NAMES, inference=kpp.MAP(progress=False))
    truth = effect.contrast(1.0, 0.0)
    with pytest.warns(UserWarning, match="a placebo says nothing"):
        placebo = effect.refute(KEY, "placebo").contrast(1.0, 0.0)
    assert abs(float(placebo.mean())) < 3 * float(placebo.std())
    for how in ("random common cause", "subset"):
        again = effect.refute(KEY, how)
        assert abs(float(again.contrast(1.0, 0.0).mean() - truth.mean())) < 2 * float(truth.std())
    assert again.dataset.attrs["rows"] == 96
    with pytest.raises(ValueError, match="how"):
        effect.refute(KEY, "other")


@pytest.mark.nightly
def test_a_category_as_the_treatment():
    rng = np.random.default_rng(0)
    drug, age = rng.choice(["none", "low", "high"], size=120), rng.normal(size=120)
    y = np.select([drug == "low", drug == "high"], [1.0, 2.0], 0.0) + age + 0.3 * rng.normal(size=120)
    table = pd.DataFrame({"drug": drug, "age": age, "y": y})
    found = causal_effect(KEY, table, CausalDAG([("drug", "y"), ("age", "y")]), treatment="drug", outcome="y")
    assert sorted(found.dataset["treatment"].values) == ["high", "low", "none"]
    contrast = found.contrast("high", "none")
    assert abs(float(contrast.mean()) - 2) < 3 * float(contrast.std())
    with pytest.raises(ValueError, match="two levels"):
        found.with_hidden_confounder(KEY, share_of_treatment=dist.Beta(1, 9), share_of_outcome=dist.Beta(1, 9))


@pytest.mark.slow
def test_a_hidden_confounder_shifts_by_the_bound(fit):
    effect = causal_effect(KEY, fit, GRAPH, **NAMES, num_draws=NUM_DRAWS)
    shares = {"share_of_treatment": dist.Delta(0.2), "share_of_outcome": dist.Delta(0.1)}
    change = effect.with_hidden_confounder(KEY, **shares).contrast(1.0, 0.0) - effect.contrast(1.0, 0.0)
    _, treatment_sd, outcome_sd = effect.scale
    bound = outcome_sd / treatment_sd * np.sqrt(0.1 * 0.2 / 0.8)
    np.testing.assert_allclose(np.abs(change), bound)
    assert abs(float(np.sign(change).mean())) < 0.03  # 20,000 signs: a standard error of 0.007
    assert outcome_sd == pytest.approx(0.5, rel=0.2)  # the noise of the simulation


SHARES = {
    "above 1": (
        dist.Uniform(1.5, 2.0),
        ValueError,
        r"`share_of_treatment` must be a distribution on \(0, 1\), got 1\.",
    ),
    "negative": (dist.Normal(-3.0, 0.1), ValueError, r"must be a distribution on \(0, 1\), got -"),
    "all of the variance": (dist.Delta(1.0), ValueError, r"must be a distribution on \(0, 1\), got 1 at index 0"),
    "a number": (0.2, TypeError, "`share_of_treatment` must be a Distribution|must be .*istribution"),
    "two numbers": (dist.Beta(np.ones(2), 9.0), ValueError, r"must be the prior of one number, got shape \(2,\)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARES)
def test_shares_of_a_variance_are_between_0_and_1(name, fit):
    prior, error, message = SHARES[name]
    effect = causal_effect(KEY, fit, GRAPH, **NAMES, num_draws=NUM_DRAWS)
    with pytest.raises(error, match=message):
        effect.with_hidden_confounder(KEY, share_of_treatment=prior, share_of_outcome=dist.Beta(1, 9))
    swapped = message.replace("share_of_treatment", "share_of_outcome")
    with pytest.raises(error, match=swapped):
        effect.with_hidden_confounder(KEY, share_of_treatment=dist.Beta(1, 9), share_of_outcome=prior)


PLACEBO = {
    "levels that are numbers": pd.Categorical(np.arange(120) % 4 + 1, categories=[4, 2, 1, 3], ordered=True),
    "text": np.array(list("abcd") * 30),
    "booleans": np.arange(120) % 2 == 0,
    "integers with a gap type": pd.array(np.arange(120) % 5, dtype="Int64"),
}


@pytest.mark.parametrize("kind", PLACEBO)
def test_a_placebo_permutes_the_treatment_and_keeps_its_type(kind):
    table = TABLE.assign(t=PLACEBO[kind]).set_index(np.arange(120) + 7)
    placebo = EffectStudy(table, EffectQuestion(GRAPH, "t", "y"), None, EffectOptions()).changed(KEY, "placebo").table
    assert placebo["t"].dtype == table["t"].dtype
    assert placebo["t"].value_counts().to_dict() == table["t"].value_counts().to_dict()
    assert (placebo["t"] != table["t"]).any()
    pd.testing.assert_frame_equal(placebo.drop(columns="t"), table.drop(columns="t"))


def test_a_placebo_with_one_lengthscale_is_warned_about():
    study = EffectStudy(TABLE, EffectQuestion(GRAPH, "t", "y"), kpp.MAP(progress=False), EffectOptions())
    with pytest.warns(UserWarning, match=r"a placebo says nothing with kpp\.MAP.*use kpp\.Laplace"):
        study.changed(KEY, "placebo")


def test_effective_rows_without_and_with_covariates():
    t, z = TABLE["t"].to_numpy(), TABLE[["z"]].to_numpy()
    counts = effective_rows(t, z[:, :0], None, np.array([0.0, 1.0, 5.0]), is_number=False)
    np.testing.assert_allclose(counts, [np.sum(t == 0), np.sum(t == 1), 0.0])
    standard = (z - z.mean()) / z.std()
    chances = LogisticRegression(max_iter=1000).fit(standard, t).predict_proba(standard)[:, 1][t == 1]
    known = np.sum(1 / chances) ** 2 / np.sum(1 / chances**2)
    found = effective_rows(t, z, Schema(("z",)), np.array([1.0]), is_number=False)
    assert effective_rows(t, z, None, np.array([1.0]), is_number=False) == found  # columns of an array are numbers
    np.testing.assert_allclose(found, known, rtol=1e-6)


def test_effective_rows_of_a_number_fall_towards_its_tails():
    dose = np.random.default_rng(0).normal(size=200)
    found = effective_rows(dose, np.zeros((200, 0)), None, np.array([0.0, 2.0, 5.0]), is_number=True)
    assert found[0] > 40 > found[1] > found[2]
    assert found[2] < 3


@pytest.mark.slow
def test_little_overlap_is_told(fit):
    with pytest.warns(UserWarning, match=r"treatments \[5.0\] rests on fewer than 10 effective rows"):
        causal_effect(KEY, fit, GRAPH, **NAMES, at=[0.0, 5.0])


@pytest.mark.slow_variants("edges0")
@pytest.mark.parametrize("edges", [[("y", "t")], [("z", "t"), ("z", "y")], [("t", "z"), ("y", "z")]])
def test_a_treatment_without_a_path_to_the_outcome_has_a_flat_curve(edges):
    """The mean outcome, with the standard error of a Bayesian bootstrap: sd / sqrt(n + 1)."""
    graph = CausalDAG(edges, bidirected=[("t", "y")])
    effect = causal_effect(KEY, TABLE, graph, **NAMES, num_draws=4000, derivative=True)
    assert not effect.contrast(1.0, 0.0).any() and not effect.average_derivative.any()
    y, curve = TABLE["y"].to_numpy(), effect.summary()
    np.testing.assert_allclose(curve["mean"], y.mean(), atol=4 * y.std() / np.sqrt(len(y) * 4000))
    np.testing.assert_allclose(curve["sd"], y.std() / np.sqrt(len(y) + 1), rtol=0.06)
    assert effect.dataset.attrs["estimand"] == str(identify(graph, treatment="t", outcome="y")) == "P(y | do(t)) = P(y)"
    assert not effect.refute(KEY, "subset").contrast(1.0, 0.0).any()


def test_a_flat_curve_is_that_of_its_subgroup_and_its_kind_of_values():
    graph, rows = CausalDAG([("y", "t")]), np.arange(len(TABLE)) < 30
    table = TABLE.assign(t=np.where(TABLE["t"] > 0, "yes", "no"), y=TABLE["y"] > 0)
    effect = causal_effect(KEY, table, graph, **NAMES, rows=rows, at=["yes"])
    assert effect.dataset["treatment"].to_numpy().tolist() == ["yes"] and effect.dataset["effective_rows"].item() == 30
    np.testing.assert_allclose(effect.draws.mean(), table["y"][:30].mean(), atol=0.02)
    with pytest.raises(
        ValueError, match=r"got 'no'; it has \['yes'\]. Give .* kpp_models.causal_effect\(..., at=\['no', ...\]"
    ):
        effect.contrast("yes", "no")
    numbers = causal_effect(KEY, table.assign(t=TABLE["z"]), graph, **NAMES)
    with pytest.raises(
        ValueError, match=r"`value` must be .*, got 1.0; it has 20 values from -1.\d+ to 1.\d+. Give .*at="
    ):
        numbers.contrast(1.0, 0.0)


def refused(**changes):
    arguments = {"data": TABLE, "graph": GRAPH, **NAMES} | changes
    return causal_effect(KEY, arguments.pop("data"), arguments.pop("graph"), **arguments)


CASES = {
    "not measured": ({"data": TABLE.drop(columns="z")}, NotCoveredError, "no embedding covers"),
    "no frame": ({"data": TABLE.to_numpy()}, TypeError, "`data` must be a kpp.Fit or a data frame"),
    "no effect, not measured": (
        {"data": TABLE.drop(columns="t"), "graph": CausalDAG([("y", "t")])},
        CausalError,
        "must hold the treatment and the outcome, lacks \\['t'\\]",
    ),
    "unknown column": ({"treatment": "dose"}, CausalError, "dose"),
    "a constant treatment": ({"data": TABLE.assign(t=1.0)}, ValueError, "a column 't' with one value in all 120 rows"),
    "missing values": ({"data": TABLE.assign(y=np.nan)}, ValueError, "missing"),
}


@pytest.mark.parametrize("name", CASES)
def test_invalid_questions_are_refused_by_name(name):
    changes, error, message = CASES[name]
    with pytest.raises(error, match=message):
        refused(**changes)


FIT_CASES = {
    "not an adjustment set": ({"graph": CausalDAG([("t", "z"), ("z", "y")])}, CausalError, "not an adjustment set"),
    "a column that is no node": ({"graph": CausalDAG([("t", "y")])}, CausalError, "lacks \\['z'\\]"),
    "values": ({"at": ["high"]}, ValueError, "high|finite"),
    "mask": ({"rows": np.zeros(120, bool)}, ValueError, "`rows` must be booleans"),
    "inference": ({"inference": kpp.MAP()}, TypeError, "`inference`, `likelihood` and `num_inducing` go with"),
}


@pytest.mark.parametrize("name", FIT_CASES)
def test_invalid_questions_to_a_fit_are_refused_by_name(name, fit):
    changes, error, message = FIT_CASES[name]
    with warnings.catch_warnings(), pytest.raises(error, match=message):
        refused(data=fit, **changes)


@pytest.mark.slow
def test_a_fit_cannot_be_refuted(fit):
    with pytest.raises(TypeError, match="needs an effect of a table"):
        causal_effect(KEY, fit, GRAPH, **NAMES).refute(KEY, "placebo")


@pytest.mark.parametrize("value", [0.1, 3.0, False])
def test_a_constant_outcome_is_refused(value):
    """The standard deviation of many equal numbers such as .1 is not 0: it is a rounding error."""
    with pytest.raises(ValueError, match="`outcome` must vary, got .* in all 120 rows of 'y': the outcome is constant"):
        causal_effect(KEY, TABLE.assign(y=value), GRAPH, **NAMES)


@pytest.mark.nightly
def test_an_outcome_without_noise_has_an_effect():
    """The outcome is the treatment."""
    effect = causal_effect(KEY, TABLE.assign(y=TABLE["t"]), GRAPH, **NAMES, inference=kpp.MAP(progress=False))
    assert abs(effect.contrast(1.0, 0.0).mean() - 1.0) < 0.02


@pytest.mark.slow
def test_a_category_without_confounders_has_the_effects_of_its_means():
    """The variance of the noise is small, so that the averages of the rows of each level are the answer."""
    levels = np.random.default_rng(0).choice(list("abc"), 200)
    table = pd.DataFrame({"t": levels, "y": (levels == "b") + 2.0 * (levels == "c") + np.tile([0.1, -0.1], 100)})
    effect = causal_effect(KEY, table, "dag { t -> y }", **NAMES, inference=kpp.MAP(progress=False))
    means = table.groupby("t")["y"].mean()
    np.testing.assert_allclose(effect.dataset["effect"].mean(("chain", "draw")), means, atol=0.03)
