"""Sensitivity indices of functions equal closed forms, and brute force over all combinations of rows."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest

import kpp
from kpp.games import GaussianConditional
from kpp.inspection.variances import function_indices, product_variances
from kpp.kernels import RBF, Categorical, Linear, Matern32, ProductKernel
from oracles.variance_games import all_combinations, conditional_mean, indices_of_game

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(5, 3))
MEASURES = ["first_order", "total", "shapley"]
GROUPS = {"none": None, "pair": {"both": [0, 2]}}


def arrays(scores):
    """Return the draws of all measures, (3, draws, g)."""
    return np.stack([scores[name].to_numpy().reshape(-1, scores.dataset.sizes["feature"]) for name in MEASURES])


def variance_of_products(means, variances):
    """Return Var(E[f | S]) of a sum over terms of products of one function per player, given their moments."""
    return lambda kept: (
        np.prod([v + m**2 if j in kept else m**2 for j, (m, v) in enumerate(zip(means, variances, strict=True))])
        - np.prod(np.square(means))
    )


KERNELS = {
    "rbf": RBF(np.array([0.7, 1.0, 2.0]), variance=1.3),
    "sum": RBF(0.8).on((0, 1)) + 0.6 * RBF(1.5).on((1, 2)) + 0.3,
    "any sign": ProductKernel((Linear(0.5) + 1.0, RBF(1.0), Linear(1.0) + 0.2)) * 0.7,
    "additive": RBF(0.8).on(0) + RBF(0.5).on(1) + RBF(1.0).on(2),
    "matern": Matern32(np.array([0.7, 1.0, 2.0])),
}


@pytest.mark.slow_variants(
    "any sign-pair",
    "additive-pair",
    "matern-pair",
    "additive-none",
    "sum-none",
    "sum-pair",
    "any sign-none",
    "matern-none",
)
@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_functions_equal_brute_force(kernel, groups):
    """Kernels of product terms are summed in closed form; the Matern kernel has none, and is predicted on a grid."""
    function = kpp.RKHSFunction(kernel, RNG.normal(size=(4, 3)), np.array([1.0, -0.5, 2.0, 0.7]), 3.0)
    scores = kpp.sensitivity(function, ROWS, groups=groups, relative=False)
    assert scores.dataset.attrs["method"] == ("grid" if kernel is KERNELS["matern"] else "closed form")
    players = [(0, 2), (1,)] if groups else [(0,), (1,), (2,)]
    grid = all_combinations(ROWS, players)
    values = np.asarray(function(grid.reshape(-1, 3))).reshape(grid.shape[:-1])
    expected = indices_of_game(lambda kept: conditional_mean(values, kept).var(), len(players))
    # Sums of a few hundred rounding errors of numbers of size 1.
    np.testing.assert_allclose(arrays(scores)[:, 0], expected, rtol=1e-9, atol=1e-12)
    assert scores.dataset["feature"].values.tolist() == (["both", "x1"] if groups else ["x0", "x1", "x2"])


@pytest.mark.slow
def test_blocks_of_rows_and_points_change_nothing(monkeypatch):
    function = kpp.RKHSFunction(KERNELS["sum"], RNG.normal(size=(7, 3)), RNG.normal(size=7))
    whole = arrays(kpp.sensitivity(function, ROWS))
    monkeypatch.setattr(product_variances, "_MAX_FACTORS", 42)
    monkeypatch.setattr(product_variances, "_MAX_PRODUCTS", 42)
    monkeypatch.setattr(product_variances, "_FEWEST_POINTS", 1)
    np.testing.assert_allclose(arrays(kpp.sensitivity(function, ROWS)), whole, rtol=1e-10)


def ishigami(x):
    return np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])


def test_the_ishigami_function_on_a_grid():
    """Averages of sines over 32 even points of a period are exact; the moments of x**4 are those of the points."""
    points = (np.arange(32) + 0.5) / 32 * 2 * np.pi - np.pi
    mean, variance = np.mean(points**4), np.var(points**4)
    first = np.array([0.5 * (1 + 0.1 * mean) ** 2, 49 / 8, 0.0])
    both = 0.005 * variance
    expected = [first, first + [both, 0, both], first + [both / 2, 0, both / 2]]
    scores = kpp.sensitivity(ishigami, np.stack([points] * 3, axis=1))
    assert scores.dataset.attrs["method"] == "grid"
    np.testing.assert_allclose(arrays(scores)[:, 0], np.array(expected) / (first.sum() + both), rtol=1e-10, atol=1e-12)


def test_the_g_function_by_sampling_within_standard_errors():
    coefficients = np.array([0.0, 1.0, 4.5, 9.0])
    rows = RNG.uniform(size=(200, 4))
    factors = (np.abs(4 * rows - 2) + coefficients) / (1 + coefficients)
    expected = indices_of_game(variance_of_products(factors.mean(axis=0), factors.var(axis=0)), 4)

    def g(x):
        return np.prod((np.abs(4 * x - 2) + coefficients) / (1 + coefficients), axis=1)

    scores = kpp.sensitivity(g, rows, relative=False, num_rows=20_000, rng_key=KEY)
    errors = np.array([scores[name].attrs["standard_error"] for name in MEASURES])
    assert (errors < 0.02 * expected.sum(axis=1).max()).all()
    # 12 numbers of a fixed seed; 3.5 standard errors are exceeded by chance once in 180 seeds.
    assert (abs(arrays(scores)[:, 0] - expected) < 3.5 * errors + 1e-12).all()
    # The largest error of 20 seeds was .4 % with a Sobol sequence, that of one seed 2 % with independent pairs.
    assert (abs(arrays(scores)[:, 0] - expected) < 0.008 * expected.sum(axis=1).max()).all()


def test_sampling_agrees_with_the_grid(monkeypatch):
    rows = RNG.normal(size=(6, 3))
    exact = arrays(kpp.sensitivity(ishigami, rows, groups=GROUPS["pair"]))
    monkeypatch.setattr(function_indices, "_MAX_GRID", 0)
    scores = kpp.sensitivity(ishigami, rows, groups=GROUPS["pair"], num_rows=20_000)
    assert scores.dataset.attrs["method"] == "20000 pairs of rows"
    errors = np.array([scores[name].attrs["standard_error"] for name in MEASURES])
    assert (abs(arrays(scores) - exact)[:, 0] < 3.5 * errors + 1e-12).all()


def dependent_rows(correlation):
    """Return rows whose mean is 0 and whose covariance is exactly the given one of two features and a third."""
    rows = RNG.normal(size=(40, 3))
    rows = rows - rows.mean(axis=0)
    white = rows @ np.linalg.inv(np.linalg.cholesky(np.cov(rows.T, ddof=0))).T
    return white @ np.linalg.cholesky(np.array([[1.0, correlation, 0], [correlation, 1, 0], [0, 0, 1]])).T


@pytest.mark.slow_variants("0.0")
@pytest.mark.parametrize("correlation", [0.0, 0.6, -0.8])
def test_shapley_effects_of_dependent_gaussian_features(correlation):
    """Owen and Prieur (2017): a linear function of two features, and here of an independent third one."""
    weights, rows = np.array([1.0, 2.0, -0.5]), dependent_rows(correlation)
    one, two = weights[:2]
    own = np.array([one**2, two**2])
    shapley = own * (1 - correlation**2 / 2) + one * two * correlation + own[::-1] * correlation**2 / 2
    first = (weights[:2] + correlation * weights[1::-1]) ** 2
    expected = np.stack([[*first, 0.25], [*(own * (1 - correlation**2)), 0.25], [*shapley, 0.25]])
    game = GaussianConditional(rows)
    for chosen in ("observational-gaussian", game):
        scores = kpp.sensitivity(lambda x: x @ weights, rows, value_function=chosen, relative=False)
        # The value function adds 1e-9 to correlations.
        np.testing.assert_allclose(arrays(scores)[:, 0], expected, atol=1e-7)
    assert scores.dataset.attrs["method"] == "coalitions"
    assert scores.dataset.attrs["value_function"] == "observational-gaussian"


def test_draws_of_a_function_are_draws_of_the_indices():
    weights = RNG.normal(size=(2, 3, 3))
    function = kpp.DrawFunction(lambda x: np.einsum("csd,nd->csn", weights, x))
    scores = kpp.sensitivity(function, ROWS, relative=False)
    assert scores.dataset.sizes == {"chain": 2, "draw": 3, "feature": 3}
    for name in MEASURES:  # of a sum of functions of one feature each
        np.testing.assert_allclose(scores[name], weights**2 * ROWS.var(axis=0), rtol=1e-10)
    assert scores.dataset.attrs["uncertainty"] == "draws of the function"


def test_shares_add_up_and_bracket_the_shapley_effects():
    function = kpp.RKHSFunction(KERNELS["rbf"], ROWS + 0.1, np.arange(1.0, 6.0))
    first, total, shapley = arrays(kpp.sensitivity(function, ROWS))
    np.testing.assert_allclose(shapley.sum(axis=1), 1.0, rtol=1e-12)
    assert (first <= shapley).all() and (shapley <= total).all()


FUNCTIONS = {
    "rkhs": kpp.RKHSFunction(KERNELS["rbf"], ROWS, np.arange(1.0, 6.0)),
    "callable": lambda x: np.sin(x).sum(axis=1) * x[:, 0],
}


@pytest.mark.slow_variants(
    "callable-observational", "callable-observational-gaussian", "rkhs-observational-gaussian", "rkhs-observational"
)
@pytest.mark.parametrize("game", [None, "observational-gaussian", "observational"])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_constant_feature_has_no_share(function, game):
    rows = np.array(ROWS)
    rows[:, 1] = 0.3
    found = arrays(kpp.sensitivity(function, rows, value_function=game))
    assert np.isfinite(found).all() and (abs(found[:, :, 1]) < 1e-12).all()


def test_the_shares_of_a_constant_function_are_0():
    for function in (lambda x: np.ones(len(x)), kpp.RKHSFunction(RBF(1.0), ROWS, np.zeros(5), 2.0)):
        assert (arrays(kpp.sensitivity(function, ROWS)) == 0).all()


def test_estimators_and_names():
    """A forest is predicted on a grid; a support vector machine is a function in closed form."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.svm import SVR

    table = pd.DataFrame(ROWS, columns=["a", "b", "c"])
    y = ROWS[:, 0] * 3
    for estimator, method in ((RandomForestRegressor(3, random_state=0), "grid"), (SVR(), "closed form")):
        estimator.fit(table, y)
        scores = kpp.sensitivity(estimator, table[["c", "a", "b"]])
        assert scores.dataset.attrs["method"] == method
        assert scores.dataset["feature"].values.tolist() == ["a", "b", "c"]
        grid = all_combinations(ROWS, [(0,), (1,), (2,)])
        values = estimator.predict(pd.DataFrame(grid.reshape(-1, 3), columns=table.columns)).reshape(grid.shape[:-1])
        expected = indices_of_game(lambda kept, values=values: conditional_mean(values, kept).var() / values.var(), 3)
        np.testing.assert_allclose(arrays(scores)[:, 0], expected, atol=1e-8)


def test_categories_by_name():
    table = pd.DataFrame({"color": ["red", "blue", "red", "green"], "size": [0.1, 0.5, 0.9, 0.2]})
    points, schema = kpp.data.tables.read_points(table)
    kernel = ProductKernel((Categorical(0.3), RBF(0.5)))
    function = kpp.NamedFunction(kpp.RKHSFunction(kernel, points, np.array([1.0, -1.0, 2.0, 0.5])), schema)
    scores = kpp.sensitivity(function, table)
    assert scores.dataset["feature"].values.tolist() == ["color", "size"]
    assert scores.probability_greater("color", "size", "total") in (0.0, 1.0)
    assert scores.summary().index.get_level_values("measure").unique().tolist() == MEASURES


def two_outputs(x):
    return x[:, :2]


WRONG = {
    "one row": ({"x": ROWS[:1]}, "`x` must hold at least 2 rows"),
    "nan": ({"x": np.full((3, 3), np.nan)}, "`x`"),
    "columns": ({"x": ROWS[:, :2]}, "`x` must have 3 columns"),
    "unknown member": ({"groups": {"a": ["no such"]}}, "`groups` 'a' holds the unknown feature 'no such'"),
    "unknown position": ({"groups": {"a": [7]}}, "`groups` 'a'"),
    "no such game": ({"value_function": "no-such"}, "`value_function`"),
    "game with options": ({"value_function": "causal"}, "`value_function` 'causal' cannot be made"),
    "draws": ({"num_draws": 0}, "`num_draws`"),
    "rows": ({"num_rows": 1}, "`num_rows`"),
    "outputs": ({"predictor": two_outputs}, "`predictor` must have one output"),
    "RKHS outputs": ({"predictor": kpp.RKHSFunction(RBF(1.0), ROWS, np.ones((5, 2)))}, "`predictor` must have one"),
    "predictor": ({"predictor": 3.0}, "`predictor`"),
    "key": ({"rng_key": 3}, "`rng_key`"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_bad_input_is_refused_by_name(arguments, message):
    with pytest.raises((TypeError, ValueError, kpp.registry.PluginError), match=message):
        kpp.sensitivity(**{"predictor": FUNCTIONS["rkhs"], "x": ROWS, **arguments})


def test_many_players_of_a_game_are_refused():
    with pytest.raises(ValueError, match="`groups` must form at most 12 players"):
        kpp.sensitivity(lambda x: x[:, 0], RNG.normal(size=(20, 13)), value_function="observational-gaussian")
