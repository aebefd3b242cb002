"""Importances by the reduction of the loss: their values, their uncertainty, and their test against 0."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import kpp
from kpp.games import GaussianConditional, Observational
from kpp.inspection.reductions.reduction import LossReduction, draw_functions
from kpp.kernels import RBF
from kpp_models import GPClassification, GPRegression
from oracles.importance import loss_reductions

RNG = np.random.default_rng(0)
X, BACKGROUND = RNG.normal(size=(6, 3)), RNG.normal(size=(5, 3))
Y = X[:, 0] + 0.3 * RNG.normal(size=6)
LABELS = (Y > 0).astype(float)
FUNCTION = kpp.RKHSFunction(RBF(jnp.array([0.8, 1.0, 1.5])), RNG.normal(size=(4, 3)), RNG.normal(size=4), 0.3)
KEY = jax.random.key(0)


def probability(x):
    return expit(x[:, 0] * x[:, 1] - x[:, 2])


def shares(x):
    return np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)


def pinball(y, predictions):
    return np.maximum(0.8 * (y - predictions), 0.2 * (predictions - y))


CLASSES = np.array([0, 2, 1, 1, 0, 2])
CASES = {
    "an RKHS function": (FUNCTION, "squared", Y, lambda y, f: (y - f) ** 2),
    "absolute": (probability, "absolute", Y, lambda y, f: abs(y - f)),
    "labels": (probability, "log", LABELS, lambda y, f: -np.log(f if y else 1 - f)),
    "classes": (shares, "log", CLASSES, lambda y, f: -np.log(f[int(y)])),
    "a loss of the user": (FUNCTION, pinball, Y, pinball),
}


@pytest.mark.slow_variants("an RKHS function")
@pytest.mark.parametrize("name", CASES)
def test_contributions_are_those_of_their_definition(name):
    function, loss, y, one = CASES[name]
    found = kpp.explain(function, X, explainer=LossReduction, y=y, loss=loss, background=BACKGROUND)
    expected = loss_reductions(function, one, X, y, BACKGROUND)
    np.testing.assert_allclose(found.values, expected, rtol=1e-9, atol=1e-10)


def test_groups_join_together():
    options = {"explainer": LossReduction, "y": Y, "background": BACKGROUND, "groups": {"pair": [0, 2]}}
    found = kpp.explain(probability, X, **options)
    expected = loss_reductions(probability, lambda y, f: (y - f) ** 2, X, Y, BACKGROUND, [[0, 2], [1]])
    assert found.feature_names == ("pair", "x1")
    np.testing.assert_allclose(found.values, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.slow_variants("game1", "game0")
@pytest.mark.parametrize("game", [Observational(BACKGROUND, 0.1), GaussianConditional(BACKGROUND)])
def test_any_game_gives_the_values_of_coalitions(game):
    masks = np.array(list(itertools.product([False, True], repeat=3)))
    losses = (Y - np.asarray(game(FUNCTION, X, masks))) ** 2
    table = dict(zip(map(tuple, masks), losses, strict=True))
    expected = np.zeros((6, 3))
    for order in itertools.permutations(range(3)):
        for place, j in enumerate(order):
            before, after = (tuple(k in order[: place + step] for k in range(3)) for step in (0, 1))
            expected[:, j] += (table[before] - table[after]) / 6
    found = kpp.explain(FUNCTION, X, explainer=LossReduction, y=Y, value_function=game)
    np.testing.assert_allclose(found.values, expected, rtol=1e-8, atol=1e-10)


def test_a_linear_function_has_a_closed_form():
    r"""With steps u_j of the prediction and the error e of the row, the contribution is u_j (u_1 + ... + u_d + 2 e)."""
    slopes = np.array([1.0, -2.0, 0.5])
    rows, errors = RNG.normal(size=(40, 3)), RNG.normal(size=40)
    y = rows @ slopes + errors
    found = kpp.explain(lambda x: x @ slopes, rows, explainer=LossReduction, y=y, background=rows)
    steps = (rows - rows.mean(axis=0)) * slopes
    np.testing.assert_allclose(found.values, steps * (steps.sum(axis=1) + 2 * errors)[:, None], atol=1e-10)


def test_sampled_orders_agree_with_all_coalitions():
    slopes = np.linspace(0.0, 2.0, 6)
    rows = RNG.normal(size=(20, 6))
    y = rows @ slopes

    def curved(x):
        return np.sin(x @ slopes)

    exact, sampled = (
        kpp.explain(curved, rows, explainer=LossReduction, y=y, background=rows[:5], num_coalitions=c, rng_key=KEY)
        for c in (64, 40)
    )
    assert (exact.attrs["method"], sampled.attrs["method"]) == ("enumeration", "permutation")
    errors = np.array(sampled.attrs["standard_errors"])
    gap = (sampled.values - exact.values).mean("instance").to_numpy()
    assert (np.abs(gap) < 4 * errors + 1e-12).all() and errors.max() > 0
    with pytest.raises(TypeError, match="rng_key"):
        kpp.importance(curved, rows, y, background=rows[:5], num_coalitions=40)


@pytest.fixture(scope="module")
def fit():
    rng = np.random.default_rng(1)
    x = pd.DataFrame(rng.normal(size=(30, 3)), columns=["dose", "age", "noise"])
    y = (np.sin(1.5 * x["dose"]) + 0.5 * x["age"] + 0.2 * rng.normal(size=30)).to_numpy()
    model = GPRegression(RBF(jnp.array([1.0, 2.0, 5.0])), noise_variance=0.05)
    return model.fit(KEY, x, y, inference=kpp.MAP(progress=False)), x, y


@pytest.mark.slow
def test_draws_have_the_law_of_the_posterior(fit):
    """1000 draws: a standard deviation has a relative standard error of 2 %, a mean one of 3 % of it."""
    fit, x, _ = fit
    posterior = fit.function_posterior().at_draw((0, 0))
    rows = x.to_numpy()
    mixed = np.where(np.arange(3) == 1, rows[:8], rows[8:16])  # not among the points of the posterior
    points = np.concatenate([rows[:4], mixed])
    values = np.asarray(draw_functions(posterior, KEY, rows, 1000)(points))[0]
    spread = np.sqrt(np.asarray(posterior.variance(points)))
    np.testing.assert_allclose(values.std(axis=0), spread, rtol=0.1)
    assert (np.abs(values.mean(axis=0) - np.asarray(posterior.mean(points))) < 0.13 * spread).all()


@pytest.mark.slow
def test_a_fit_has_draws_of_the_function_and_of_the_rows(fit):
    fit, x, y = fit
    found = kpp.importance(fit, x, y, num_draws=40)
    attrs = found.dataset.attrs
    assert (attrs["uncertainty"], attrs["rows"]) == ("full", "in sample")  # without priors
    sd = found.summary()["sd"].unstack(0)
    assert (sd["importance"] > 0.9 * sd[["importance_of_rows", "importance_of_mean"]].max(axis=1)).all()
    assert attrs["p_values"]["dose"] < 0.05 < attrs["p_values"]["noise"]
    assert found.probability_greater("dose", "noise", "importance") > 0.95
    assert kpp.importance(fit, x + 0.1, y, num_draws=2).dataset.attrs["rows"] == "new"


def test_a_function_with_draws_is_explained_draw_by_draw():
    slopes = np.array([[1.0, 0.5, 0.0], [2.0, -1.0, 0.1]])
    function = kpp.DrawFunction(lambda x: slopes @ x.T, "draw")
    found = kpp.importance(function, X, Y, background=BACKGROUND)
    assert found.dataset.attrs["uncertainty"] == "draws of the predictor"
    rows = found["importance_of_rows"].to_numpy()[0].reshape(2, -1, 3)[:, 0]
    for slope, means in zip(slopes, rows, strict=True):
        expected = loss_reductions(lambda x, b=slope: x @ b, lambda y, f: (y - f) ** 2, X, Y, BACKGROUND)
        np.testing.assert_allclose(means, expected.mean(axis=0), rtol=1e-9, atol=1e-12)


@pytest.mark.slow_variants("lengthscales0", "lengthscales1")
@pytest.mark.parametrize(
    "lengthscales", [np.full((9, 3), 0.8), np.full((2, 3), 0.8), np.array([[0.8, 1.0, 1.5], [1.0, 0.5, 2.0]])]
)
def test_draws_of_one_kernel_and_of_several_are_explained_alike(lengthscales):
    num_draws = len(lengthscales)
    coefficients = np.arange(1, num_draws + 1)[:, None] * np.asarray(FUNCTION.coefficients)
    parts = {"intercept": np.linspace(0.3, -1.0, num_draws)[None], "batch_shape": (1, num_draws)}
    kernel = RBF(jnp.asarray(lengthscales[None]))
    function = kpp.RKHSFunction.over_draws(kernel, FUNCTION.points, coefficients[None], **parts)
    found = kpp.explain(function, X, explainer=LossReduction, y=Y, background=BACKGROUND).values.to_numpy()
    for draw in (0, num_draws - 1):
        expected = loss_reductions(function.at_draw((0, draw)), lambda y, f: (y - f) ** 2, X, Y, BACKGROUND)
        np.testing.assert_allclose(found[0, draw], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.nightly
def test_classes_are_on_the_scale_of_probabilities(fit):
    _, x, y = fit
    labels = np.where(y > 0, "ill", "well")
    fitted = GPClassification(RBF(1.0)).fit(KEY, x, labels, inference=kpp.MAP(progress=False))
    options = {"loss": "log", "background": x[:2], "num_draws": 2}
    found = kpp.importance(fitted, x[:5], labels[:5], **options)
    shares = fitted.predict(x[:5])["probability"].to_numpy()[0, 0]
    base = fitted.predict(x[:2])["probability"].to_numpy()[0, 0].mean()
    second = labels[:5] == "well"
    expected = np.where(second, np.log(shares / base), np.log((1 - shares) / (1 - base))).mean()
    assert float(found["importance_of_rows"].sum("feature").mean()) == pytest.approx(expected)
    assert "p_values" not in found.dataset.attrs  # a part of the uncertainty, and rows that the fit has seen


def test_an_estimator_is_explained_by_its_predictions():
    linear_model = pytest.importorskip("sklearn.linear_model")
    labels = np.array(["a", "b", "c"] * 2)
    fitted = linear_model.LogisticRegression().fit(X, labels)
    found = kpp.importance(fitted, X, labels, loss="log", background=BACKGROUND)
    assert list(found.dataset.data_vars) == ["importance"]
    assert (found.dataset.attrs["uncertainty"], found.dataset.attrs["rows"]) == ("rows only", "not known")


@pytest.mark.slow
def test_a_constant_feature_has_importance_zero():
    rows = X * [1, 1, 0]
    found = kpp.importance(FUNCTION, rows, Y, background=rows)
    assert (found["importance"].sel(feature="x2") == 0).all()
    assert found.dataset.attrs["p_values"]["x2"] == 1.0


@pytest.mark.slow
def test_one_row_is_enough_for_importances_but_not_for_a_test():
    found = kpp.importance(FUNCTION, X[:1], Y[:1], background=BACKGROUND)
    assert np.isfinite(found["importance"]).all() and "p_values" not in found.dataset.attrs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": Y[:5]}, "`y`"),
        ({"y": np.where(np.arange(6) == 2, np.nan, Y)}, "`y`"),
        ({"loss": "log"}, "`y` must hold"),
        ({"loss": "log", "y": LABELS}, "probabilities"),
        ({"loss": "hinge"}, "`loss`"),
        ({"loss": lambda y, predictions: 0.0}, "`loss` must return one finite number"),
        ({"predictor": shares}, "`loss` 'squared' needs one number per prediction, got 3 outputs"),
    ],
)
def test_bad_input_is_refused(changes, message):
    options = {"predictor": FUNCTION, "x": X, "y": Y, "background": BACKGROUND, **changes}
    with pytest.raises(ValueError, match=message):
        kpp.importance(options.pop("predictor"), options.pop("x"), options.pop("y"), **options)


@pytest.mark.nightly
@pytest.mark.parametrize("loss", ["squared", "log"])
def test_the_test_against_zero_holds_its_level_on_new_rows(loss):
    """600 noise features of 200 data sets: a rejected share of 5 % has a standard error of 0.9 %."""
    rejected = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(100, 4))
        noise = 0.3 * rng.normal(size=3)
        latent = 1.5 * x[:, 0]
        y = (
            latent + rng.normal(size=100)
            if loss == "squared"
            else (rng.uniform(size=100) < expit(latent)).astype(float)
        )

        def predict(x, noise=noise):
            found = 1.2 * x[:, 0] + x[:, 1:] @ noise
            return found if loss == "squared" else expit(found)

        found = kpp.importance(predict, x, y, loss=loss, background=rng.normal(size=(100, 4)))
        rejected.append([found.dataset.attrs["p_values"][f"x{j}"] < 0.05 for j in range(1, 4)])
    assert np.mean(rejected) == pytest.approx(0.05, abs=0.025)
