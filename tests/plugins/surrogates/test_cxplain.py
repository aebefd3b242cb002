"""CXPlain learns the increases of the loss, knows how sure it is, and reads groups, categories and labels."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import kpp
from kpp.games import as_players
from kpp_surrogates import CXPlain
from kpp_surrogates.causal_targets import as_truth, increases_of_loss, normalized, replacements

KEY = jax.random.key(0)
# Most tests share one set of shapes, so that training is compiled once; those with two players share these options too.
NUM_POINTS, NUM_FEATURES = 150, 4
SHORT = {"num_bootstraps": 3, "num_epochs": 60, "learning_rate": 0.02, "progress": False}


def switch(x):
    """The first feature decides which of the next two counts; the last one never does."""
    x = np.asarray(x)
    return np.where(x[:, 0] > 0, 2 * x[:, 1], x[:, 2])


def increases_one_by_one(function, x, losses, fill):
    """The definition, a point and a feature at a time."""
    increases = np.zeros(x.shape)
    for i, point in enumerate(x):
        for j in range(x.shape[1]):
            masked = point.copy()
            masked[j] = fill[j]
            before, after = (losses(i, np.asarray(function(row[None]))[0]) for row in (point, masked))
            increases[i, j] = max(0.0, after - before)
    return increases


@pytest.fixture(scope="module")
def background():
    return np.random.default_rng(0).normal(size=(NUM_POINTS, NUM_FEATURES))


@pytest.fixture(scope="module")
def fitted(background):
    return CXPlain(background, progress=False).fit(switch, rng_key=KEY)


def test_increases_of_the_squared_loss_are_those_of_the_definition(background):
    x, y = background[:6], np.arange(6.0)
    found = increases_of_loss(
        switch, x, as_truth(y, switch(x), None), loss="squared", fill=np.full(4, 0.1), players=as_players(None, 4)
    )
    expected = increases_one_by_one(switch, x, lambda i, value: (y[i] - value) ** 2, np.full(4, 0.1))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_increases_of_the_log_loss_are_those_of_scikit_learn(background):
    y = np.array(["no", "perhaps", "yes"])[np.digitize(background[:, 0] + background[:, 1], [-0.7, 0.7])]
    model = LogisticRegression().fit(background, y)
    x, fill = background[:6], np.zeros(4)
    truth = as_truth(y[:6], model.predict_proba(x), tuple(model.classes_))
    found = increases_of_loss(model.predict_proba, x, truth, loss="log", fill=fill, players=as_players(None, 4))
    expected = increases_one_by_one(
        model.predict_proba, x, lambda i, row: log_loss(y[i : i + 1], row[None], labels=model.classes_), fill
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_without_labels_the_log_loss_rises_by_a_divergence(background):
    """The increase is then the Kullback-Leibler divergence of the predictions, whichever of both shapes they have."""
    p = 1 / (1 + np.exp(-2 * background[:6, 0]))
    functions = {
        "one": lambda x: 1 / (1 + np.exp(-2 * x[:, 0])),
        "two": lambda x: np.stack([1 - functions["one"](x), functions["one"](x)], axis=1),
    }
    expected = p * np.log(p / 0.5) + (1 - p) * np.log((1 - p) / 0.5)
    for function in functions.values():
        x, fill = background[:6], np.zeros(4)
        truth = as_truth(None, function(x), None)
        found = increases_of_loss(function, x, truth, loss="log", fill=fill, players=as_players(None, 4))
        np.testing.assert_allclose(found[:, 0], expected, rtol=1e-6)  # probabilities are clipped at 1e-7
        np.testing.assert_allclose(found[:, 1:], 0.0, atol=1e-12)


def test_shares_sum_to_one_and_are_equal_where_nothing_matters():
    np.testing.assert_allclose(normalized(np.array([[3.0, 1.0], [0.0, 0.0]])), [[0.75, 0.25], [0.5, 0.5]])


def test_replacements_are_means_and_most_frequent_categories():
    x = np.array([[1.0, 2.0], [3.0, 0.0], [5.0, 2.0]])
    np.testing.assert_array_equal(replacements("mean", x, {1}), [3.0, 2.0])
    np.testing.assert_array_equal(replacements("zero", x, {1}), [0.0, 0.0])


@pytest.mark.slow
def test_values_are_near_the_targets_at_new_points(fitted):
    x = np.random.default_rng(1).normal(size=(200, 4))
    without = np.stack([switch(np.where(np.arange(4) == j, 0.0, x)) for j in range(4)], axis=1)
    targets = normalized((switch(x)[:, None] - without) ** 2)
    values = fitted.explain(x).values.values
    # 150 points fix the shares to a few percent: 0.05 on average where a constant guess is off by more than 0.3.
    assert np.abs(values - targets).mean() < 0.08
    assert np.abs(targets.mean(axis=0) - targets).mean() > 0.2
    assert values[:, 3].mean() < 0.02  # the last feature never counts


@pytest.mark.slow
def test_values_and_variance_are_quantiles_of_the_networks(fitted):
    x = np.random.default_rng(1).normal(size=(5, 4))
    members = fitted.importances(x)
    assert members.shape == (10, 5, 4)
    np.testing.assert_allclose(members.sum(axis=-1), 1.0, rtol=1e-12)
    explanation = fitted.explain(x)
    low, high = np.percentile(members, [2.5, 97.5], axis=0)
    np.testing.assert_allclose(explanation.values, np.median(members, axis=0), rtol=1e-12)
    np.testing.assert_allclose(explanation.variance, ((high - low) / 3.92) ** 2, rtol=1e-9)
    assert np.all(explanation.base_values == 0)
    np.testing.assert_allclose(explanation.predictions, switch(x))


@pytest.mark.slow
def test_it_is_unsure_far_from_the_background(fitted):
    far = fitted.explain(np.random.default_rng(1).normal(size=(50, 4)) * 6).variance.mean()
    near = fitted.explain(np.random.default_rng(1).normal(size=(50, 4))).variance.mean()
    assert far > 2 * near


@pytest.mark.slow
def test_explaining_is_fitting_and_then_explaining(fitted, background):
    x = background[:3]
    explanation = CXPlain(background, progress=False).explain(switch, x, rng_key=KEY)
    np.testing.assert_array_equal(explanation.values, fitted.explain(x).values)
    assert explanation.attrs["truth"] == "predictions"


@pytest.mark.slow
def test_groups_are_taken_away_together(background):
    """Features of a group cancel one by one but count together; the network sees all of its columns."""
    explainer = CXPlain(background, groups={"pair": ["x0", 1], "rest": [2, 3]}, **SHORT)
    explanation = explainer.explain(lambda x: 3 * x[:, 0] * x[:, 1] + 0.01 * x[:, 2], background, rng_key=KEY)
    assert explanation.feature_names == ("pair", "rest")
    assert explanation.attrs["groups"] == {"pair": ["x0", "x1"], "rest": ["x2", "x3"]}
    assert explanation.values.sel(feature="pair").mean() > 0.9


@pytest.mark.slow
def test_with_the_truth_at_hand_what_only_misleads_does_not_count(background):
    """The second feature is noise to this model: without it the model is right, yet its predictions change."""
    increases = {}
    for name, y in (("labels", background[:, 0]), ("predictions", None)):
        truth = as_truth(y, _misled(background), None)
        options = {"loss": "squared", "fill": np.zeros(4), "players": as_players(None, 4)}
        increases[name] = increases_of_loss(_misled, background, truth, **options)
    assert increases["labels"][:, 1].max() == 0.0
    assert increases["predictions"][:, 1].min() > 0.0
    fitted = CXPlain(background, background[:, 0], progress=False).fit(_misled, rng_key=KEY)
    assert fitted.explain(background[:2]).attrs["truth"] == "labels"


def _misled(x):
    return x[:, 0] + 0.5 * x[:, 1]


@pytest.mark.slow
def test_estimators_with_text_and_categories_are_explained():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "color": rng.choice(["blue", "green", "red"], size=NUM_POINTS, p=[0.5, 0.2, 0.3]),
            "size": rng.normal(size=NUM_POINTS),
        }
    )
    y = np.where(table["color"] == "red", "bad", "good")
    coding = ColumnTransformer([("color", OneHotEncoder(), ["color"])], remainder="passthrough")
    model = make_pipeline(coding, LogisticRegression(C=100.0)).fit(table, y)
    options = {**SHORT, "loss": "log", "background": table, "y": y, "replacement": "mean"}
    explanation = kpp.explain(model, table[:20], explainer="cxplain", rng_key=KEY, **options)
    assert explanation.output_names == ("bad", "good")
    assert explanation.feature_names == ("color", "size")
    np.testing.assert_array_equal(explanation.values[..., 0], explanation.values[..., 1])
    red = (table["color"] == "red")[:20].to_numpy()
    assert explanation.values.sel(feature="color", output="bad")[red].min() > 0.9


@pytest.mark.slow
def test_a_posterior_is_explained_by_its_mean(background):
    kernel = kpp.kernels.RBF(1.0)
    draws = kpp.RKHSFunction.over_draws(
        kernel, background[:5], np.random.default_rng(0).normal(size=(1, 2, 5)), 0.0, batch_shape=(1, 2)
    )
    explanation = CXPlain(background, progress=False).explain(draws, background[:2], rng_key=KEY)
    np.testing.assert_allclose(explanation.predictions, draws(background[:2]).mean(axis=(0, 1)), rtol=1e-9)
    assert explanation.values.dims == ("instance", "feature")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "hinge"}, "`loss` must be one of"),
        ({"replacement": "noise"}, "`replacement` must be one of"),
        ({"num_bootstraps": 1}, "`num_bootstraps` must be at least 2"),
        ({"y": np.zeros(3)}, "`background` and `y` must have the same number of rows"),
        ({"loss": "log"}, "`loss` 'log' needs probabilities, but `y` gives"),
        ({"y": np.full(NUM_POINTS, np.nan)}, "`y` must hold finite numbers"),
        ({"y": np.zeros((NUM_POINTS, 2))}, "`y` must have shape"),
        ({"categorical": [7]}, "`categorical` must hold positions from 0 to 3"),
        ({"categorical": ["x9"]}, "x9"),
    ],
)
def test_what_does_not_fit_is_refused(background, options, message):
    with pytest.raises(ValueError, match=message):
        CXPlain(background, progress=False, **options).fit(switch, rng_key=KEY)


def test_unknown_labels_are_refused(background):
    with pytest.raises(ValueError, match="`y` has the unknown labels"):
        as_truth(np.array(["a", "b"]), np.zeros((2, 2)), ("a", "c"))
    with pytest.raises(ValueError, match=r"`y` has the unknown labels \['2'\]"):
        as_truth(np.array([2.0, 1.0]), np.zeros((2, 2)), None)


def test_a_key_is_needed(background):
    with pytest.raises(TypeError, match="`rng_key` must be given"):
        CXPlain(background).explain(switch, background)


@pytest.mark.nightly
def test_a_u_net_learns_where_an_image_matters():
    """Only the brightest pixel matters, which may be anywhere."""
    rng = np.random.default_rng(0)
    images = rng.uniform(0.0, 0.2, size=(300, 6, 6))
    images[np.arange(300), rng.integers(0, 6, 300), rng.integers(0, 6, 300)] = 1.0
    x = images.reshape(300, 36)

    def brightest(points):
        return np.asarray(points).max(axis=1)

    train, test = x[:200], x[200:]
    without = np.stack([brightest(np.where(np.arange(36) == j, 0.0, test)) for j in range(36)], axis=1)
    targets = normalized((brightest(test)[:, None] - without) ** 2)
    errors = {}
    for name, options in {"dense": {}, "u-net": {"image_shape": (6, 6), "hidden": (8, 8)}}.items():
        explainer = CXPlain(train, num_bootstraps=2, num_epochs=40, learning_rate=0.01, progress=False, **options)
        members = explainer.fit(brightest, rng_key=KEY).importances(test)
        errors[name] = np.abs(np.median(members, axis=0) - targets).sum(axis=1).mean()
    # A share misplaced counts twice, so that a guess of equal shares errs by nearly 2.
    assert errors["u-net"] < 0.2
    assert errors["u-net"] < errors["dense"]


@pytest.mark.slow
def test_groups_of_pixels_have_the_mean_of_their_outputs():
    x = np.random.default_rng(0).normal(size=(8, 12))
    groups = {"left": [0, 1, 2, 6, 7, 8], "right": [3, 4, 5, 9, 10, 11]}
    options = {"num_bootstraps": 2, "num_epochs": 1, "hidden": (2,), "progress": False, "image_shape": (2, 2, 3)}
    fitted = CXPlain(x, groups=groups, **options).fit(lambda points: np.asarray(points)[:, 0], rng_key=KEY)
    network = jax.tree.map(lambda leaf: leaf[0] if isinstance(leaf, jax.Array) else leaf, fitted.networks)
    inputs = fitted.inputs(x)[0]
    pixels, found = eqx.filter_jit(lambda network, x: (network.network(x), network(x)))(network, inputs)
    expected = [np.asarray(pixels)[members].mean() for members in groups.values()]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_images_have_no_categories():
    x = np.random.default_rng(0).normal(size=(8, 4))
    with pytest.raises(ValueError, match=r"`categorical` must be empty with `image_shape`, got the columns \[1\]"):
        CXPlain(x, image_shape=(2, 2), categorical=[1], progress=False).fit(lambda x: x[:, 0], rng_key=KEY)
