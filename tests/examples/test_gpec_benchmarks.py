"""The benchmarks of GPEC: changes of gradients by hand, the tables' numbers, and that both scripts run."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.special import gammaln
from scipy.stats import spearmanr


@pytest.fixture(scope="module")
def ranking(load_script):
    return load_script("benchmarks/gpec_ranking.py")


def test_the_gradient_of_a_quadratic_changes_by_twice_the_step(ranking):
    gradient = ranking.gradient_of(lambda x: (x**2).sum(axis=1))
    found = ranking.change(gradient, np.zeros((200, 3)), np.random.default_rng(0))
    # the mean length of normal steps in three dimensions, within five standard errors over 6000 draws
    length = np.sqrt(2.0) * np.exp(gammaln(2.0) - gammaln(1.5))
    assert found.mean() == pytest.approx(2.0 * ranking.SPREAD * length, rel=5 * 0.42 / np.sqrt(6000))


@pytest.mark.parametrize("law", ["uniform", "normal"])
def test_rows_are_in_standard_units(ranking, law):
    x = ranking.draw(np.random.default_rng(0), law, 20_000, 3)
    # five standard errors of a mean and of a standard deviation
    np.testing.assert_allclose(x.mean(axis=0), 0.0, atol=5 / np.sqrt(20_000))
    np.testing.assert_allclose(x.std(axis=0), 1.0, atol=5 / np.sqrt(40_000))


@pytest.mark.slow_variants("random", "warped, 4 features", "waves", "warped")
@pytest.mark.parametrize("name", ["waves", "chirp", "half", "random", "warped", "warped, 4 features"])
def test_models_have_both_classes_and_gradients_by_differences(ranking, name):
    make, d = ranking.MODELS[name]
    function = make(jax.random.key(10))
    x = ranking.draw(np.random.default_rng(1), "uniform", 400, d)
    assert 0.1 < np.mean(np.asarray(function(x)) > 0.0) < 0.9
    x = x[np.abs(x[:, 0]) > 0.3]  # waves get ever shorter at zero
    step = 1e-6 * np.eye(d)
    expected = [(np.asarray(function(x + e)) - np.asarray(function(x - e))) / 2e-6 for e in step]
    # rounding of 1e-16 over the step, and third derivatives up to 1e5 times its square
    np.testing.assert_allclose(ranking.gradient_of(function)(x), np.transpose(expected), rtol=1e-6, atol=1e-6)


def test_the_summary_has_means_errors_and_shares(ranking):
    values = {"GPEC": [0.4, 0.2, 0.3], "Naive-GP": [0.1, 0.25, -0.2]}
    rows = [
        {"model": "m", "explained": "e", "seed": seed, "method": method, "correlation": value}
        for method, column in values.items()
        for seed, value in enumerate(column)
    ]
    found = ranking.summarize(pd.DataFrame(rows)).loc[("m", "e")]
    assert found[("GPEC", "mean")] == pytest.approx(0.3)
    assert found[("GPEC", "sem")] == pytest.approx(0.1 / np.sqrt(3))
    assert found[("above", "share")] == pytest.approx(2 / 3)


@pytest.mark.nightly
def test_the_uncertainty_ranks_changes_above_naive(ranking, tmp_path):
    table = ranking.main(["--quick", "--output", str(tmp_path)])
    means = table.groupby("method")["correlation"].mean()
    assert means["GPEC"] > 0.2 and means["GPEC"] > means["Naive-GP"] + 0.1
    assert (tmp_path / "gpec_ranking.csv").exists() and (tmp_path / "gpec_ranking_summary.csv").exists()


@pytest.mark.slow
def test_correlations_are_those_of_the_uncertainty(ranking, monkeypatch):
    """An uncertainty that is the distance from the origin has the correlation of that distance."""

    class Fitted:
        def law(self, x):
            self.x = np.asarray(x)
            return type("Law", (), {"variance": (self.x**2)[..., None]})

    class Explainer:
        def fit(self, *args, **kwargs):
            return Fitted()

    monkeypatch.setitem(ranking.METHODS, "distance", lambda x: Explainer())
    (row, _) = ranking.correlations("chirp", 10, "uniform", ["distance"], 20)
    rng, score = np.random.default_rng(10), ranking.chirp(None)
    ranking.draw(rng, "uniform", ranking.NUM_KNOWN, 2)
    test = ranking.draw(rng, "uniform", ranking.NUM_TEST, 2)
    truth = ranking.change(ranking.gradient_of(lambda x: jax.nn.sigmoid(score(x))), test, rng)
    assert row["correlation"] == pytest.approx(spearmanr(np.linalg.norm(test, axis=1), truth).statistic, abs=1e-9)


@pytest.mark.slow
def test_times_are_measured(load_script, tmp_path):
    table = load_script("benchmarks/gpec.py").main(["--quick", "--trees", "5", "--output", str(tmp_path)])
    assert {"sampling", "geodesics"} <= set(table["part"]) and (table["elapsed"] > 0.0).all()
    assert (tmp_path / "gpec.csv").exists()


def test_amortized_values_given_their_sums_are_those_of_a_normal_law(load_script):
    script, rng = load_script("benchmarks/amortized.py"), np.random.default_rng(0)
    mean, variance, totals = rng.normal(size=(3, 4)), rng.uniform(0.1, 1.0, size=(3, 4)), rng.normal(size=3)
    found, left = script.with_sums(mean, variance, totals)
    np.testing.assert_allclose(found.sum(axis=1), totals)
    for row, (spread, total) in enumerate(zip(variance, totals, strict=True)):
        covariance, ones = np.diag(spread), np.ones(4)
        gain = covariance @ ones / (ones @ covariance @ ones)
        np.testing.assert_allclose(found[row], mean[row] + gain * (total - mean[row].sum()))
        np.testing.assert_allclose(left[row], np.diag(covariance - np.outer(gain, ones @ covariance)))


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_the_lengthscales_of_the_model_make_amortized_values_precise(load_script):
    table = load_script("benchmarks/amortized.py").main(["--quick"]).set_index(["m", "method"])
    own, chosen = table.loc[(40, "naive-gp, model's lengthscales")], table.loc[(40, "naive-gp")]
    assert own["closed"] < 0.15 and own["closed"] < 0.5 * chosen["closed"]
    assert (table["closed"] < table["error"] * 1.01).all()
