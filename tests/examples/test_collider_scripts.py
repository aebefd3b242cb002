"""The experiments on collider regression: the data are as described, scores by hand, tables and figures."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.spatial.distance import cdist
from scipy.stats import norm, wilcoxon
from sklearn.linear_model import LinearRegression


@pytest.fixture(scope="module")
def methods(load_script):
    return load_script("reproduce/collider_methods.py")


@pytest.fixture(scope="module")
def simulation(load_script, methods):
    return load_script("reproduce/collider_simulation.py")


@pytest.fixture(scope="module")
def tuned(load_script, simulation):
    return load_script("reproduce/collider_tuned.py")


@pytest.fixture(scope="module")
def aerosol(load_script, methods):
    return load_script("reproduce/aerosol.py")


@pytest.fixture(scope="module")
def fair_simulation(load_script):
    return load_script("reproduce/fair_simulation.py")


@pytest.fixture(scope="module")
def process(simulation):
    return simulation.Process.standardised()


def test_draws_are_standardised_and_spouses_say_nothing_of_the_target(process):
    x, y = process.draw(np.random.default_rng(5), 40_000, 8)
    columns = np.column_stack([x, y])
    bound = 5 * np.sqrt(2 / 40_000)  # five standard errors of a mean, a variance or a correlation, and more
    np.testing.assert_allclose(columns.mean(0), 0.0, atol=bound)
    np.testing.assert_allclose(columns.var(0), 1.0, atol=bound)
    correlations = np.corrcoef(columns.T)[-1]
    np.testing.assert_allclose(correlations[3:-1], 0.0, atol=bound)
    assert np.abs(correlations[:3]).max() > 0.7


@pytest.mark.parametrize(("num_children", "num_spouses"), [(1, 1), (3, 8), (5, 2), (2, 20)])
def test_covariances_of_algorithm_7_have_a_collider_for_any_dimensions(simulation, num_children, num_spouses):
    """Y is independent of X2, and becomes dependent given X1: exact in a Gaussian law, up to rounding."""
    rng = np.random.default_rng(11)
    sigma = simulation.draw_covariance(rng, num_children, num_spouses)
    assert sigma.shape == (num_children + num_spouses + 1,) * 2
    np.testing.assert_allclose(np.diagonal(sigma), 1.0, atol=1e-14)
    assert np.linalg.eigvalsh(sigma).min() >= 0.01 / 1.01 - 1e-12  # variances before the normalization are at most 1.01
    children, spouses = np.arange(num_children), np.arange(num_children, num_children + num_spouses)
    np.testing.assert_allclose(sigma[spouses, -1], 0.0, atol=1e-14)
    assert np.abs(sigma[children, -1]).min() > 1e-3
    # Given the children: the Schur complement of their block.
    rest = np.append(spouses, -1)
    explained = sigma[np.ix_(rest, children)] @ np.linalg.solve(
        sigma[np.ix_(children, children)], sigma[np.ix_(children, rest)]
    )
    given_children = sigma[np.ix_(rest, rest)] - explained
    assert np.abs(given_children[:-1, -1]).max() > 1e-3
    # The maps of single columns keep the independence, which moments of nonlinear functions show.
    x, y = simulation.Process.standardised(sigma, num_children, 20_000).draw(rng, 40_000, num_spouses)
    functions = [np.tanh, np.abs, np.square]
    correlations = [np.corrcoef(f(x[:, j]), g(y))[0, 1] for j in spouses for f in functions for g in functions]
    assert np.abs(correlations).max() < 5 / np.sqrt(40_000)  # five standard errors
    assert np.abs(np.corrcoef(x[:, 0], y)[0, 1]) > 5 / np.sqrt(40_000)


def test_g1_g2_and_noise_are_the_published_ones(simulation):
    columns = np.random.default_rng(0).normal(size=(20_000, 12))
    found = simulation.transform(np.random.default_rng(1), columns)
    np.testing.assert_allclose(
        found[:, 3:11], columns[:, 3:11] + 0.1 * np.sin(2 * np.pi * columns[:, 3:11] ** 2), rtol=1e-12
    )
    np.testing.assert_array_equal(found[:, 11], columns[:, 11])
    noise = found[:, :3] - columns[:, :3] - 0.1 * np.cos(2 * np.pi * columns[:, :3] ** 2)
    np.testing.assert_allclose(noise.std(0), 0.1, atol=5 * 0.1 / np.sqrt(40_000))
    np.testing.assert_allclose(np.corrcoef(noise.T), np.eye(3), atol=5 / np.sqrt(20_000))


def test_children_given_spouses_have_the_law_of_the_children(process):
    """Over many points with one draw each they are draws like any others."""
    draws = process.draw_given_latent(np.random.default_rng(0), 40_000, 1, 3)[:, 0]
    others, _ = process.draw(np.random.default_rng(1), 40_000, 3)
    bound = 5 * 2 / np.sqrt(40_000)  # five standard errors of the difference of two averages of products
    np.testing.assert_allclose(draws.T @ draws / 40_000, others.T @ others / 40_000, atol=bound)
    np.testing.assert_allclose(draws.mean(0), others.mean(0), atol=bound)


@pytest.mark.slow
def test_the_oracle_gap_of_a_child_is_that_by_quadrature(simulation, process):
    """Given spouses with explained variance v, X1 is g1(sqrt(v) a + sqrt(1 - v) b) with normal a and b, and noise."""
    sigma = simulation.SIGMA
    explained = sigma[0, 3:6] @ np.linalg.solve(sigma[3:6, 3:6], sigma[3:6, 0])
    grid = np.linspace(-7.0, 7.0, 2001)
    weights = norm.pdf(grid) * (grid[1] - grid[0])
    u = np.sqrt(explained) * grid[:, None] + np.sqrt(1 - explained) * grid
    means = (u + 0.1 * np.cos(2 * np.pi * u**2)) @ weights
    expected = weights @ ((means - process.mean[0]) / process.scale[0]) ** 2
    gaps = [
        simulation.oracle_gap(
            lambda x: x[:, 0], process.draw_given_latent(np.random.default_rng([9, seed]), 400, 20, 3)
        )
        for seed in range(12)
    ]
    assert abs(np.mean(gaps) - expected) < 5 * np.std(gaps, ddof=1) / np.sqrt(12)


def test_the_oracle_gap_of_noise_is_zero(simulation):
    """Its average of means squared would be 1 / draws = .2."""
    rng = np.random.default_rng(0)
    gap = simulation.oracle_gap(lambda x: rng.normal(size=len(x)), np.zeros((20_000, 5, 2)))
    assert abs(gap) < 5 * 0.2 * np.sqrt(2 / 20_000) * 1.5  # five standard errors, that of the variance included


def test_cases_differ_in_one_number(simulation):
    plan = simulation.Plan()
    assert [case.labeled for case in plan.cases("labeled")] == [10, 20, 40, 60, 80, 100, 150, 200]
    assert {(case.unlabeled, case.spouses) for case in plan.cases("labeled")} == {(100, 3)}
    assert simulation.Case() in plan.cases("unlabeled") and simulation.Case() in plan.cases("spouses")


def test_samples_share_no_rows(simulation, methods, process):
    settings = methods.Settings((8.0, 2.0), 1.0, {})
    seed = simulation.Seed(0, process, settings, simulation.SMALL)
    sample = seed.sample(simulation.Case(20, 30, 2))
    assert sample.x.shape == (20, 5) and sample.spouses == (3, 4) and len(sample.rows) == 50
    tested = []
    seed.error(lambda x: tested.append(x) or 0.0, 2)
    assert len(np.unique(np.concatenate([sample.rows, *tested]), axis=0)) == 50 + simulation.SMALL.num_test
    longer = seed.sample(simulation.Case(20, 0, 8))
    np.testing.assert_array_equal(longer.x[:, :5], sample.x)  # ablations see the same rows


def test_the_forest_is_projected_by_a_linear_regression(methods):
    rng = np.random.default_rng(0)
    sample = methods.Sample(rng.normal(size=(20, 3)), rng.normal(size=20), rng.normal(size=(30, 3)), 1)
    calls = []

    def forest(x):
        calls.append(len(x))
        return np.sin(x).sum(axis=1)

    projected = methods.project_forest(forest, sample)
    x = rng.normal(size=(7, 3))
    linear = LinearRegression().fit(sample.rows[:, 1:], forest(sample.rows))
    np.testing.assert_allclose(projected(x), forest(x) - linear.predict(x[:, 1:]), rtol=1e-10)


def test_scores_are_compared_in_pairs(methods, capsys):
    rng = np.random.default_rng(0)
    scores = pd.DataFrame(rng.uniform(size=(12, 5)), columns=methods.METHODS)
    methods.print_scores(scores, "errors")
    printed = capsys.readouterr().out
    gain = scores["KRR"] - scores["H_P-KRR"]
    assert f"{(gain > 0).mean():.2f}{gain.mean():>11.4f} +- {gain.std() / np.sqrt(12):.4f}" in printed
    methods.print_scores(scores, "correlations", lower_is_better=False)
    assert f"{(gain < 0).mean():.2f}{-gain.mean():>11.4f} +-" in capsys.readouterr().out
    table = methods.wilcoxon_table(scores)
    assert table.loc["KRR", "RF"] == wilcoxon(scores["RF"], scores["KRR"]).pvalue
    assert table.notna().sum().sum() == 10


def test_the_chosen_ridge_is_compared_with_the_best_fixed_one(simulation, capsys):
    rows = [
        {"seed": seed, "ridge": ridge, "chosen": chosen, "P-KRR": error, "H_P-KRR": 2 * error}
        for seed, ridge, chosen, error in ((0, 0.1, True, 1.0), (0, 1.0, False, 3.0), (1, 0.1, False, 3.0))
    ] + [{"seed": 1, "ridge": 1.0, "chosen": True, "P-KRR": 1.4, "H_P-KRR": 2.8}]
    simulation.print_ridges(pd.DataFrame(rows), pd.DataFrame({"KRR": [2.0, 2.0]}))
    printed = capsys.readouterr().out
    assert "P-KRR: 1.2000 with the chosen ridge, -40.0 % above the best fixed ridge, 0.1; KRR has 2.0000" in printed


def test_splits_of_the_simulations_are_disjoint_and_centred(aerosol):
    pool, test = aerosol.read(None)
    assert pool.shape == (500, 3) and test is None
    sample, x, y = aerosol.split(pool, None, seed=0)
    assert sample.x.shape == (50, 2) and sample.unlabeled.shape == (200, 2) and x.shape == (250, 2) == (len(y), 2)
    np.testing.assert_allclose([*sample.x.mean(0), sample.y.mean()], 0.0, atol=1e-12)
    every = np.concatenate([sample.rows, x])
    assert len(np.unique(every.round(9), axis=0)) == len(np.unique(pool[:, :2], axis=0)) == 500
    apart, x, _ = aerosol.split(pool[:300], pool[300:], seed=0)
    assert len(x) == 200 and np.abs(x[:, 0] - (pool[300:, 0] - pool[:, 0].mean())).max() < 0.02
    assert apart.children == (0,) and apart.spouses == (1,)


def test_metrics_of_the_forcing(aerosol):
    y, prediction = np.array([1.0, -1.0, 2.0]), np.array([0.5, -0.5, 1.0])
    found = aerosol.metrics(y, prediction)
    np.testing.assert_allclose([found["error"], found["correlation"]], [0.25, 1.0], rtol=1e-12)
    np.testing.assert_allclose(found["snr"], 10 * np.log10(6.0 / 1.5), rtol=1e-12)


def test_aerosols_reach_the_forcing_and_the_temperature_of_their_emissions(fair_simulation):
    """Sulphur stays for a year, so that its concentration becomes the emission: what then follows is known by hand."""
    years, sulphur = 300, 70.0
    emitted = np.tile([0.0, 0.0, sulphur, 0.0], (years, 1))
    noise = np.zeros((1, years, 4))
    np.testing.assert_array_equal(fair_simulation.simulate(np.zeros((years, 4)), noise), np.zeros((1, 3)))
    found = fair_simulation.simulate(emitted, noise)[0]
    forcing = -0.00126 * sulphur
    after = years - 1  # the first year has not yet taken all of it up
    expected = np.sum(fair_simulation.RESPONSE * (1 - np.exp(-after / fair_simulation.RESPONSE_YEARS))) * forcing
    np.testing.assert_allclose(found[1:], [0.0, forcing], rtol=1e-12)
    assert found[0] == pytest.approx(expected, rel=0.01)


def test_simulations_of_the_climate_are_compared_by_their_moments(fair_simulation):
    one, other = (np.random.default_rng(seed).normal(size=(4000, 3)) @ np.triu(np.ones((3, 3))) for seed in (0, 1))
    assert all(abs(gap) < 4 for *_, gap in fair_simulation.compare(one, other))
    shifted = fair_simulation.compare(one + [0.0, 1.0, 0.0], other)
    assert [name for name, *_, gap in shifted if abs(gap) > 4] == ["mean of the CO2 forcing"]


@pytest.mark.slow
def test_simulations_of_the_climate_are_those_that_come_with_the_script(fair_simulation, aerosol):
    pytest.importorskip("fair")
    found = fair_simulation.simulate(fair_simulation.emissions(), fair_simulation.draw_noise(5, 5))
    np.testing.assert_allclose(found, aerosol.read(None)[0][:5], rtol=1e-5)


def projected_fits(sample, lengthscales, ridge, x):
    """KRR, P-KRR and H_P-KRR by their formulas."""
    d, n, rows = sample.num_children, len(sample.x), sample.rows

    def r(a, b):
        return np.exp(-(cdist(a[:, :d], b[:, :d]) ** 2) / (2 * lengthscales[0] ** 2)) + 1

    def l(a, b):  # noqa: E743
        return np.exp(-(cdist(a[:, d:], b[:, d:]) ** 2) / (2 * lengthscales[1] ** 2))

    def averaged(a, b):  # l [r - w' r - r w + w' r w]
        first, second = (np.linalg.solve(l(rows, rows) + ridge * np.eye(len(rows)), l(rows, z)) for z in (a, b))
        inner = r(a, b) - first.T @ r(rows, b) - r(a, rows) @ second + first.T @ r(rows, rows) @ second
        return inner * l(a, b)

    weights = np.linalg.solve(l(rows, rows) + ridge * np.eye(len(rows)), l(rows, x))
    plain = np.linalg.solve(r(sample.x, sample.x) * l(sample.x, sample.x) + 1e-3 * n * np.eye(n), sample.y)
    inside = np.linalg.solve(averaged(sample.x, sample.x) + 1e-3 * n * np.eye(n), sample.y)
    return {
        "KRR": (r(x, sample.x) * l(x, sample.x)) @ plain,
        "P-KRR": ((r(x, sample.x) - weights.T @ r(rows, sample.x)) * l(x, sample.x)) @ plain,
        "H_P-KRR": averaged(x, sample.x) @ inside,
    }


@pytest.mark.nightly_variants("9")
@pytest.mark.slow
@pytest.mark.parametrize("num_unlabeled", [0, 9])
def test_kernel_methods_are_those_of_the_formulas(methods, num_unlabeled):
    rng = np.random.default_rng(0)
    sample = methods.Sample(rng.normal(size=(12, 3)), rng.normal(size=12), rng.normal(size=(num_unlabeled, 3)), 2)
    settings = methods.Settings((2.0, 1.5), 0.3, {"n_estimators": 3})
    x = rng.normal(size=(6, 3))
    found = methods.fit_all(settings, sample, settings.fit_forest(sample, 0))
    for name, expected in projected_fits(sample, (2.0, 1.5), 0.3, x).items():
        np.testing.assert_allclose(found[name](x), expected, rtol=1e-9, atol=1e-11)  # systems of condition 1e4


@pytest.mark.nightly
def test_the_simulation_runs_to_its_tables_and_figures(simulation, tmp_path):
    arguments = ["--small", "--output", str(tmp_path)]
    result = CliRunner().invoke(simulation.main, arguments, catch_exceptions=False)
    for words in ("Test MSE, 3 seeds", "Oracle gap", "Wilcoxon", "by labeled", "by unlabeled", "by spouses"):
        assert words in result.output
    errors = pd.read_csv(tmp_path / "errors.csv")
    assert errors.shape == (3, 11) and (errors[list(simulation.METHODS)] < 1.0).all(axis=None)
    assert f"{errors['KRR'].mean():>9.4f}" in result.output
    ridges = pd.read_csv(tmp_path / "ridge.csv")
    assert (ridges.groupby("seed")["chosen"].sum() == 1).all()
    base = ridges.loc[ridges["ridge"] == 1.0].set_index("seed")[["P-KRR", "H_P-KRR"]]
    np.testing.assert_allclose(base, errors.set_index("seed").loc[base.index, base.columns], rtol=1e-9)
    assert (tmp_path / "simulation.png").stat().st_size > 10_000


@pytest.mark.slow
def test_hyperparameters_are_tuned_on_other_data(tuned):
    seeds = [
        tuned.Seed(number, tuned.Process.standardised(), tuned.START, tuned.SMALL) for number in tuned.TUNED_ON[:1]
    ]
    candidates = tuned.varied(tuned.START, lengthscales=[(8.0, 2.0), (0.01, 0.01)], regularization=[1e-3])
    assert tuned.choose(tuned.ridge("none"), candidates, seeds) is candidates[0]  # the other one predicts 0
    errors = tuned.main.main(["--small"], standalone_mode=False)["errors"]
    assert errors.shape == (2, 9) and (errors[["RF", "P-RF", "KRR", "P-KRR", "H_P-KRR"]] < 1.0).all(axis=None)


@pytest.mark.nightly_variants("True")
@pytest.mark.slow
@pytest.mark.parametrize("given", [False, True])
def test_the_aerosol_experiment_runs_to_its_tables_and_figures(aerosol, tmp_path, given):
    arguments = ["--small", "--output", str(tmp_path)]
    if given:
        pool, _ = aerosol.read(None)
        np.savez(tmp_path / "simulations.npz", train=pool[:300], test=pool[300:])
        arguments += ["--data", str(tmp_path / "simulations.npz")]
    result = CliRunner().invoke(aerosol.main, arguments, catch_exceptions=False)
    assert result.output.count("Wilcoxon") == result.output.count("published: ") == 3
    table = pd.read_csv(tmp_path / "aerosol.csv")
    assert len(table) == 10 and (table["error"] < 1.3).all() and (table["correlation"] > 0.1).all()
    assert (tmp_path / "aerosol.png").stat().st_size > 10_000
