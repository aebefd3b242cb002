"""The experiments on interventions: truths against surgery on the models, calibration by hand, tables and figures."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner
from scipy.stats import norm, ttest_rel


@pytest.fixture(scope="module")
def models(load_script):
    return load_script("reproduce/causal_models.py")


@pytest.fixture(scope="module")
def methods(load_script):
    return load_script("reproduce/effect_methods.py")


@pytest.fixture(scope="module")
def ablation(load_script, models, methods):
    return load_script("reproduce/bayesimp_ablation.py")


@pytest.fixture(scope="module")
def optimisation(load_script, models, methods):
    return load_script("reproduce/bayesimp_bo.py")


PROBLEMS = {
    "ablation": lambda models: models.ablation(),
    "backdoor": lambda models: models.simple("backdoor", multimodal=False),
    "multimodal": lambda models: models.simple("frontdoor", multimodal=True),
    "do(D)": lambda models: models.harder("D", noise=0.3),
    "do(E)": lambda models: models.harder("E", noise=0.3),
    "healthcare": lambda models: models.healthcare(),
}


@pytest.mark.slow_variants("do(D)", "do(E)")
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_truth_is_that_of_the_model_after_surgery(models, name):
    """1e5 draws of the model with the treatment set; five standard errors."""
    problem, rng = PROBLEMS[name](models), np.random.default_rng(1)
    low, high = problem.treatments
    for treatment in (low + 0.37, 0.4 * low + 0.6 * high):
        mean, error = problem.simulate_effect(rng, treatment, 100_000)
        assert abs(problem.effect(np.array([treatment]))[0] - mean) < 5 * error


@pytest.mark.slow
def test_the_harder_graph_as_printed_has_no_effect_to_speak_of(models):
    """Its target has a standard deviation above 4; the best treatment differs from the worst by 0.01."""
    problem = models.harder("D")
    effect = problem.effect(np.linspace(*problem.treatments, 61))
    assert np.ptp(effect) < 0.01
    assert problem.second(np.random.default_rng(0), 1000)[1].std() > 4.0


def test_nature_sets_treatments_and_data_sets_are_as_described(models):
    problem, rng = models.healthcare(), np.random.default_rng(0)
    first = problem.first(rng, 2000)
    age, bmi = np.asarray(first.adjusting).T
    left = np.asarray(first.treatment)[:, 0] + 13.0 - 0.1 * age - 0.2 * bmi
    assert abs(left.std() - 1.0) < 0.08 and abs(left.mean()) < 0.12  # statin's own noise, five standard errors
    places, targets = problem.second(rng, 500)
    assert places.shape == (500, 1) and targets.shape == (500,)
    assert problem.mediators[0] <= places.min() and places.max() <= problem.mediators[1]


@pytest.mark.slow
def test_patients_can_be_read(models, tmp_path):
    rng = np.random.default_rng(0)
    psa = rng.uniform(1.0, 30.0, 60)
    volume = 2.0 + 0.4 * psa + 0.5 * rng.normal(size=60)
    rows = "\n".join(f"{np.log(p)}\t{np.log(max(v, 0.1))}" for p, v in zip(psa, volume, strict=True))
    (tmp_path / "patients.tsv").write_text("lpsa\tlcavol\n" + rows)
    response, noise = models.fitted_volume(tmp_path / "patients.tsv")
    at = np.array([5.0, 15.0, 25.0])
    np.testing.assert_allclose(response(at), 2.0 + 0.4 * at, atol=0.5)  # the noise of one patient
    assert 0.3 < noise < 0.8


def test_calibration_errors(ablation):
    """A normal truth with its own mean and sd is calibrated; half the sd covers 2 Phi(q / 2) - 1."""
    rng = np.random.default_rng(0)
    truth, weights = rng.normal(size=4000), np.full(4000, 1 / 4000)
    curve = ablation.coverage(truth, np.zeros(4000), np.ones(4000), weights)
    np.testing.assert_allclose(curve, ablation.LEVELS, atol=0.04)  # five standard errors
    half = ablation.coverage(truth, np.zeros(4000), np.full(4000, 0.5), weights)
    expected = 2 * norm.cdf(0.5 * norm.ppf(0.5 + ablation.LEVELS / 2)) - 1
    np.testing.assert_allclose(half, expected, atol=0.04)
    covered = ablation.LEVELS + rng.normal(0.1, 0.05, (50, 1))  # every data set off by about 0.1
    error, se = ablation.calibration_error(covered)
    offsets = covered[:, 0] - ablation.LEVELS[0]
    np.testing.assert_allclose([error, se], [offsets.mean(), offsets.std(ddof=1) / np.sqrt(50)], rtol=1e-9)


def test_places_are_where_something_was_not_seen(ablation, models):
    grid = np.linspace(-6.0, 6.0, 121)
    found = ablation.places(models.ablation(), grid)
    at = {name: grid[region] for name, region in found.items()}
    assert -4.0 in at["x common, y unseen"].round(9) and 0.0 in at["x common, y seen"].round(9)
    assert 6.0 in at["x rare, y seen"].round(9) and -6.0 in at["x rare, y unseen"].round(9)
    np.testing.assert_array_equal(sum(region.astype(int) for region in found.values()), 1)


def test_regrets_are_compared_in_pairs(optimisation, capsys):
    rng = np.random.default_rng(0)
    values = rng.uniform(size=(3, 6, 12))
    coords = {"prior": ["GP", "sampling", "BayesIMP"], "query": np.arange(1, 13)}
    optimisation.print_regrets(xr.DataArray(values, coords, ("prior", "replication", "query")))
    printed = capsys.readouterr().out
    ours, other = values[2, :, 9], values[0, :, 9]
    difference, error = (ours - other).mean(), (ours - other).std(ddof=1) / 6**0.5
    assert "BayesIMP - GP, after 5: " in printed
    assert f"after 10: {difference:+.4f} +- {error:.4f} (t-test" in printed
    assert f"t-test p = {ttest_rel(ours, other).pvalue:.3f}" in printed
    assert f"{values[0, :, 4].mean():.4f} +- {values[0, :, 4].std(ddof=1) / 6**0.5:.4f}" in printed


@pytest.mark.nightly
def test_the_ablation_runs_to_its_tables_and_figures(ablation, tmp_path):
    arguments = ["--small", "--output", str(tmp_path)]
    result = CliRunner().invoke(ablation.main, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    for name in ablation.CALIBRATED:
        assert result.output.count(f"\n{name:>9}") == 3  # widths, and two kinds of calibration
    assert result.output.count("One data set: nothing to compare.") == 2
    assert {path.name for path in tmp_path.iterdir()} == {"ablation.png", "calibration.png", "calibration.csv"}


@pytest.mark.nightly
def test_the_optimisation_runs_to_its_tables_and_figures(optimisation, tmp_path):
    arguments = ["--small", "--direction", "maximize", "--output", str(tmp_path)]
    result = CliRunner().invoke(optimisation.main, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    for name in ("GP", "sampling", "BayesIMP"):
        assert f"\n{name:>18}" in result.output
    assert "learning - BayesIMP, after 3: " in result.output
    assert {path.name for path in tmp_path.iterdir()} == {"regret_0_20_maximize.csv", "regret_0_20_maximize.png"}
