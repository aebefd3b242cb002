"""Curves and surfaces: each kind against loops and dense algebra, scikit-learn, and closed forms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

import kpp
from kpp.causal import CausalDAG
from kpp.functionals.toolkit import PartialDependence
from kpp.kernels import RBF, Linear, Matern52, ProductKernel
from kpp_models import GPClassification, GPRegression
from oracles import curves as oracle

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(RNG.normal(size=(12, 2)).round(1), columns=["dose", "age"])
ROWS = TABLE.to_numpy()
GRID = [-1.2, -0.5, 0.1, 1.3]
KERNELS = {
    "RBF": RBF(jnp.array([0.9, 1.4]), 1.7),
    "a sum": RBF(jnp.array([0.9, 1.4])) + RBF(jnp.array([3.0, 0.5]), 0.3) + 0.4,
    # The factor of the feature is 0 at 0.
    "linear factor": ProductKernel((Linear(), RBF(0.8))),
    "not a product": Matern52(1.1, 0.8),
}


def posterior_of(kernel):
    points = ROWS[:7] + 0.3
    root = jnp.linalg.cholesky(jnp.linalg.inv(kernel.gram(points) + 0.1 * jnp.eye(7)))
    return kpp.GPPosterior(kpp.RKHSFunction(kernel, points, jnp.cos(jnp.arange(7.0)), 0.3), root)


POSTERIOR = posterior_of(KERNELS["RBF"])


def mean_of(x):
    return POSTERIOR.mean(jnp.asarray(x))


def of_row(row):
    return float(mean_of(row[None])[0])


def settings(grid):
    return np.array([oracle.with_value(row, 0, t) for row in ROWS for t in grid])


def dense(kind, posterior):
    rule = oracle.partial_dependence if kind == "partial" else oracle.accumulated_effects
    return oracle.law(posterior, lambda f: rule(f, ROWS, 0, GRID), settings(GRID))


def assert_law(curve, mean, covariance):
    # Dense algebra of some hundred numbers of order 1.
    np.testing.assert_allclose(curve.law.mean[0], mean, atol=1e-10)
    np.testing.assert_allclose(curve.law.covariance[0], covariance, atol=1e-10)


@pytest.mark.slow_variants("RBF", "a sum", "linear factor", "not a product")
@pytest.mark.parametrize("name", KERNELS)
def test_partial_dependence_of_a_gaussian_process_is_dense_algebra(name):
    posterior = posterior_of(KERNELS[name])
    assert_law(kpp.curve(posterior, TABLE, "dose", grid=GRID), *dense("partial", posterior))


@pytest.mark.slow_variants("linear factor", "not a product")
@pytest.mark.parametrize("name", ["linear factor", "not a product"])
def test_partial_dependence_obeys_the_laws_of_functionals(name):
    functional = PartialDependence(ROWS[:3], 0, GRID[:2])
    kpp.testing.check_functional(functional, posterior_of(KERNELS[name]).mean)


@pytest.mark.slow
def test_accumulated_effects_are_those_of_loops_for_the_law_and_for_a_function():
    mean, covariance = dense("accumulated", POSTERIOR)
    assert_law(kpp.curve(POSTERIOR, TABLE, "dose", kind="accumulated", grid=GRID), mean, covariance)
    curve = kpp.curve(mean_of, TABLE, "dose", kind="accumulated", grid=GRID)
    np.testing.assert_allclose(curve.law.mean[0], mean, atol=1e-12)
    step = np.diff(np.eye(4), axis=0)[-1]
    expected = oracle.variance_of_last_change(of_row, ROWS, 0, GRID)
    assert step @ curve.law.covariance[0] @ step == pytest.approx(expected, rel=1e-10)


@pytest.mark.slow
def test_partial_dependence_is_that_of_scikit_learn():
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.inspection import partial_dependence

    class Mean(RegressorMixin, BaseEstimator):
        def fit(self, x, y):
            self.n_features_in_ = x.shape[1]
            return self

        def predict(self, x):
            return np.asarray(mean_of(x))

    found = partial_dependence(Mean().fit(ROWS, ROWS[:, 0]), ROWS, [0], method="brute", kind="both")
    grid = found["grid_values"][0]
    for predictor in (POSTERIOR, mean_of):
        curve = kpp.curve(predictor, TABLE, "dose", grid=grid)
        np.testing.assert_allclose(curve.law.mean[0], found["average"][0], atol=1e-12)
    individual = kpp.curve(POSTERIOR, TABLE, "dose", kind="individual", grid=grid)
    np.testing.assert_allclose(individual.dataset["mean"][0], found["individual"][0], atol=1e-12)


PAIRS = [(a, b) for a in GRID[1:] for b in (-1.0, 0.5)]
ROWS_OF_THREE = RNG.normal(size=(6, 3))


@pytest.mark.slow
def test_a_surface_of_two_features_is_dense_algebra():
    kernel = RBF(jnp.array([0.9, 1.4, 1.1]), 1.7)
    points = ROWS_OF_THREE[:5] + 0.3
    root = jnp.linalg.cholesky(jnp.linalg.inv(kernel.gram(points) + 0.1 * jnp.eye(5)))
    posterior = kpp.GPPosterior(kpp.RKHSFunction(kernel, points, jnp.cos(jnp.arange(5.0)), 0.3), root)
    surface = kpp.curve(posterior, ROWS_OF_THREE, ("x2", "x0"), grid=(GRID[1:], [-1.0, 0.5]))
    settings = np.array([oracle.with_value(row, [2, 0], pair) for row in ROWS_OF_THREE for pair in PAIRS])
    mean, covariance = oracle.law(
        posterior, lambda f: oracle.partial_dependence(f, ROWS_OF_THREE, [2, 0], PAIRS), settings
    )
    assert_law(surface, mean, covariance)
    table = surface.summary()
    assert (table.index.names, table.index.tolist()) == (["x2", "x0"], PAIRS)
    assert surface.turning_point().sum() == pytest.approx(1.0)
    np.testing.assert_allclose(surface.centered().summary()["mean"].mean(), 0.0, atol=1e-12)
    called = kpp.curve(posterior.mean, ROWS_OF_THREE, ("x2", "x0"), grid=(GRID[1:], [-1.0, 0.5]))
    np.testing.assert_allclose(called.law.mean[0], surface.law.mean[0], atol=1e-12)
    assert surface.plot().get_xlabel() == "x2"


@pytest.mark.slow
def test_a_surface_of_a_number_and_a_category_names_its_levels(fit, table):
    surface = kpp.curve(fit, table, ("dose", "place"), kind="observational", grid=3)
    levels = [str(level) for level in dict.fromkeys(level for _, level in surface.grid)]
    assert [label.get_text() for label in surface.plot().get_yticklabels()] == levels
    with pytest.raises(ValueError, match="`rise` needs a curve of one feature, got a surface"):
        surface.rise()


@pytest.mark.slow
def test_an_individual_curve_has_the_law_of_its_values():
    curve = kpp.curve(POSTERIOR, TABLE, "dose", kind="individual", grid=GRID).instance(2)
    points = np.array([oracle.with_value(ROWS[2], 0, t) for t in GRID])
    assert_law(curve, POSTERIOR.mean(points), POSTERIOR.covariance(points, points))


@pytest.mark.slow
def test_causal_curves_under_a_linear_kernel_are_the_closed_form():
    """Under k(x, x') = x'x' the functional of E[x | do(t)] is that vector, by regression for the descendants."""
    posterior = posterior_of(Linear(jnp.array([0.5, 0.8])))
    curve = kpp.curve(posterior, TABLE, "dose", kind="causal", graph=CausalDAG([("dose", "age")]), grid=GRID)
    slope, (center, other) = np.cov(ROWS.T)[0, 1] / ROWS[:, 0].var(ddof=1), ROWS.mean(axis=0)
    expected = np.array([[t, other + slope * (t - center)] for t in GRID])
    np.testing.assert_allclose(curve.law.mean[0], posterior.mean(expected), atol=1e-7)
    np.testing.assert_allclose(curve.law.covariance[0], posterior.covariance(expected, expected), atol=1e-7)


@pytest.mark.slow
def test_observational_curves_are_the_weighted_sums_of_the_game():
    game = kpp.games.Observational(ROWS, 0.01)
    curve = kpp.curve(POSTERIOR, TABLE, "dose", kind="observational", regularization=0.01, grid=GRID)
    points = np.array([[t, 0.0] for t in GRID])
    weights = np.asarray(game.imputation_weights(POSTERIOR.mean, points, np.array([[True, False]])))[0]
    matrix = np.concatenate([np.diag(column) for column in weights.T], axis=1)
    every = np.array([oracle.with_value(row, 0, t) for row in ROWS for t in GRID])
    excess = np.asarray(POSTERIOR.mean(every)) - 0.3
    assert_law(curve, 0.3 + matrix @ excess, matrix @ np.asarray(POSTERIOR.covariance(every, every)) @ matrix.T)


@pytest.mark.slow
def test_functions_without_a_law_have_draws_or_the_errors_of_the_rows():
    def three(x):
        return np.stack([mean_of(x), 2.0 * mean_of(x), -mean_of(x)])

    expected = oracle.partial_dependence(of_row, ROWS, 0, GRID)
    drawn = kpp.curve(kpp.DrawFunction(three, "draw"), TABLE, "dose", grid=GRID)
    np.testing.assert_allclose(drawn.dataset["draws"][0], [expected, 2.0 * expected, -expected], atol=1e-12)
    assert (drawn.attrs["uncertainty"], "covariance" in drawn.dataset) == ("draws", False)
    plain = kpp.curve(mean_of, TABLE, "dose", grid=GRID)
    values = np.array([[of_row(oracle.with_value(row, 0, t)) for t in GRID] for row in ROWS])
    np.testing.assert_allclose(plain.law.covariance[0], np.cov(values.T) / len(ROWS), atol=1e-12)
    assert plain.attrs["uncertainty"] == "rows only"


@pytest.mark.slow
def test_the_band_holds_whole_curves_and_centered_ones():
    curve = kpp.curve(POSTERIOR, TABLE, "dose", grid=GRID)
    center = np.eye(4) - 0.25
    law = curve.centered().law
    np.testing.assert_allclose(law.covariance[0], center @ curve.law.covariance[0] @ center, atol=1e-14)
    np.testing.assert_allclose(law.mean[0], center @ curve.law.mean[0], atol=1e-14)
    for found in (curve, curve.centered()):
        table = found.summary(0.8)
        samples = found.law.sample(jax.random.key(7), 4000).reshape(-1, 4)
        inside = (samples >= table["band_lower"].to_numpy()) & (samples <= table["band_upper"].to_numpy())
        # Five standard errors of two estimates from 4000 samples.
        assert inside.all(axis=1).mean() == pytest.approx(0.8, abs=0.045)


@pytest.mark.slow
def test_statements_about_the_shape_of_a_curve():
    curve = kpp.curve(lambda x: x[:, 0] ** 2 + 3.0 * x[:, 0], ROWS, "x0", grid=[-1.5, 0.0, 1.2])
    increasing = curve.probability_increasing()
    assert increasing.everywhere == 1.0
    assert increasing.steps.tolist() == [1.0, 1.0]
    assert curve.turning_point()[1.2] == curve.turning_point("minimum")[-1.5] == 1.0
    ends = np.quantile(ROWS[:, 0], [0.3, 0.7])
    rise = curve.rise(0.3, 0.7)
    line = np.interp(ends, [-1.5, 0.0, 1.2], [-2.25, 0.0, 5.04])
    assert rise[["from", "to", "mean"]].tolist() == pytest.approx([*ends, line[1] - line[0]])
    assert curve.contrast(1.2, -1.5)[["from", "to", "mean"]].tolist() == pytest.approx([-1.5, 1.2, 5.04 + 2.25])
    with pytest.raises(ValueError, match=r"`value` must be a value of the grid, \[-1.5, 0.0, 1.2\], got 1.0"):
        curve.contrast(1.0, 0)
    uncertain = kpp.curve(POSTERIOR, TABLE, "dose", grid=GRID)
    law, change = uncertain.law, uncertain.contrast(GRID[2], GRID[0])
    mean = np.asarray(law.mean[:, 2] - law.mean[:, 0])
    variance = np.asarray(law.covariance[:, 2, 2] + law.covariance[:, 0, 0] - 2 * law.covariance[:, 0, 2])
    assert change[["mean", "sd"]].tolist() == pytest.approx([mean.mean(), np.sqrt(variance.mean() + mean.var())])
    samples = uncertain.law.sample(jax.random.key(3), 20000).reshape(-1, 4)
    assert uncertain.turning_point().to_numpy() == pytest.approx(
        np.bincount(samples.argmax(axis=1), minlength=4) / 20000, abs=0.04
    )
    share = (np.diff(samples) > 0).mean(axis=0)
    assert uncertain.probability_increasing().steps.to_numpy() == pytest.approx(share, abs=0.02)


@pytest.fixture(scope="module")
def fit():
    table = TABLE.assign(place=["sea", "land"] * 6)
    kernel = RBF(dist.LogNormal(0.0, 1.0)).on(["dose", "age"])
    model = GPRegression(kernel, noise_variance=0.1)
    return model.fit(jax.random.key(0), table, ROWS[:, 0], inference=kpp.Laplace(num_samples=120, progress=False))


@pytest.fixture(scope="module")
def table(fit):
    return pd.DataFrame(fit.schema.decode(np.asarray(fit.data["x"])))


@pytest.mark.slow
def test_a_fit_keeps_the_posteriors_of_few_draws(fit):
    few = fit.function_posterior(at="few")
    assert few.batch_shape == (1, 100)
    assert few is fit.function_posterior(at="few")


@pytest.mark.slow
def test_a_fit_has_curves_of_numbers_and_of_categories(fit, table):
    curve = kpp.curve(fit, table, "dose", grid=5)
    assert curve.dataset["draws"].dims == ("chain", "draw", "grid")
    assert (curve.attrs["uncertainty"], curve.attrs["rows"]) == ("full", "12 of 12")
    places = kpp.curve(fit, table, "place")
    assert places.grid.tolist() == ["land", "sea"]
    assert kpp.curve(fit, table, "place", grid=["sea"]).summary()["mean"].tolist() == pytest.approx(
        [places.summary().loc["sea", "mean"]], abs=1e-12
    )
    sea = places.contrast("sea", "land")
    assert sea["mean"] == pytest.approx(places.summary()["mean"].diff().iloc[1], abs=1e-12)
    assert (sea["from"], sea["to"]) == ("land", "sea")
    for method in (places.rise, places.probability_increasing):
        with pytest.raises(ValueError, match="needs a feature with an order"):
            method()


@pytest.mark.slow
def test_probabilities_of_a_classifier_are_drawn_jointly():
    labels = np.where(ROWS[:, 0] > 0, "yes", "no")
    fit = GPClassification(RBF(1.0, 2.0)).fit(jax.random.key(0), TABLE, labels, inference=kpp.MAP())
    curve = kpp.curve(fit, TABLE, "dose", grid=[-1.0, 1.0])
    predicted = [fit.predict(TABLE.assign(dose=t))["probability"].mean().item() for t in (-1.0, 1.0)]
    table = curve.summary()
    assert (curve.attrs["scale"], curve.dataset.sizes["draw"]) == ("probability", 200)
    # Five standard errors of 200 draws.
    assert (abs(table["mean"] - predicted) < 5 * table["sd"] / np.sqrt(200)).all()
    assert kpp.curve(fit, TABLE, "dose", grid=[-1.0, 1.0], scale="latent").attrs["scale"] == "latent"


def test_the_output_of_an_estimator_is_chosen_by_name():
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(random_state=0).fit(ROWS, np.digitize(ROWS[:, 0], [-0.5, 0.5]))
    found = kpp.curve(tree, ROWS, "x0", output="2", grid=[-1.0, 1.0])
    assert (found.attrs["scale"], found.summary()["mean"].tolist()) == ("probability", pytest.approx([0.0, 1.0]))
    with pytest.raises(ValueError, match=r"`output` must be one of \('0', '1', '2'\), got None"):
        kpp.curve(tree, ROWS, "x0")
    with pytest.raises(ValueError, match=r"`output` must be one of \(None,\), got 'yes'"):
        kpp.curve(POSTERIOR, TABLE, "dose", output="yes")


CASES = {
    "unknown feature": (dict(feature="dosis"), ValueError, "`feature`: unknown feature name 'dosis'.* 'dose'"),
    "unknown option": (dict(graph="x"), TypeError, "unknown options `graph`"),
    "no graph": (dict(kind="causal"), TypeError, "needs `graph`"),
    "accumulated category": (dict(feature="place", kind="accumulated"), ValueError, "the levels of a category have no"),
    "unknown level": (dict(feature="place", grid=["air"]), ValueError, "`grid` must hold levels of 'place'"),
    "decreasing grid": (dict(grid=[1.0, 0.0]), ValueError, "`grid` must hold at least two values in increasing"),
    "empty interval": (dict(kind="accumulated", grid=[0.31, 0.32, 0.6]), ValueError, "`grid` must have rows"),
    "kind of two": (dict(feature=("dose", "place"), kind="accumulated"), ValueError, "`kind` must be one of"),
    "the same twice": (dict(feature=("dose", "dose")), ValueError, "`feature` must name one feature, or two"),
    "three features": (dict(feature=("dose", "place", "x")), ValueError, "`feature` must name one feature, or two"),
    "one grid of two": (dict(feature=("dose", "place"), grid=(3,)), ValueError, "`grid` must be a number, or hold"),
    "scale": (dict(scale="probability"), TypeError, "`scale` 'probability' needs a kpp.Fit of a classifier"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_arguments_are_named(case, fit, table):
    options, error, message = CASES[case]
    with pytest.raises(error, match=message):
        kpp.curve(fit, table, options.pop("feature", "dose"), **options)


@pytest.mark.slow
def test_bad_rows_are_named(fit, table):
    with pytest.raises(ValueError, match="`x` must have at least two values of 'dose' to choose a grid, got only 1"):
        kpp.curve(fit, table.assign(dose=1.0), "dose")
    with pytest.raises(ValueError, match="`x` must have at least 2 rows"):
        kpp.curve(fit, table[:2][1:], "dose", grid=[0.0, 1.0])
    with pytest.warns(UserWarning, match=r"`grid` has 1 of 2 values outside of 'dose' .* at most 0.0% of the rows"):
        kpp.curve(fit, table, "dose", grid=[0.0, 9.0])


def test_a_plot_shows_the_mean_the_interval_and_the_band():
    curve = kpp.curve(POSTERIOR, TABLE, "dose", grid=GRID)
    axis, table = curve.plot(), curve.summary()
    assert axis.get_lines()[0].get_ydata() == pytest.approx(table["mean"].to_numpy())
    edges = [collection.get_paths()[0].vertices[:, 1] for collection in axis.collections]
    for found, prefix in zip(edges, ("band_", ""), strict=True):
        assert (found.min(), found.max()) == pytest.approx(
            (table[f"{prefix}lower"].min(), table[f"{prefix}upper"].max())
        )
    individual = kpp.curve(POSTERIOR, TABLE, "dose", kind="individual", grid=GRID).plot()
    assert len(individual.get_lines()) == len(ROWS) + 2


@pytest.mark.slow
def test_gradients_of_a_fit_are_named_differences_of_its_function(fit, table):
    law, step = kpp.gradient(fit, table[:2], "age"), 1e-5
    assert law.names == ("age, point 0", "age, point 1")
    mean = fit.function_posterior(at="few").mean
    rows = np.asarray(fit.schema.read(table[:2]))
    shift = step * np.array([0.0, 1.0, 0.0])
    np.testing.assert_allclose(law.mean, (mean(rows + shift) - mean(rows - shift)) / (2 * step), atol=1e-8)
    assert kpp.gradient(fit, table[:1]).names == ("dose", "age")
    with pytest.raises(ValueError, match="`features` must be one of"):
        kpp.gradient(fit, table, "place")
    with pytest.raises(TypeError, match="`predictor` must be a Gaussian process, got a function without"):
        kpp.gradient(mean_of, TABLE)
