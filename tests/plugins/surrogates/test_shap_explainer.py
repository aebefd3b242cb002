"""The explainer "shap": numbers of shap's own explainers and of all coalitions, scales, keys, draws, GPEC, files."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

import kpp
from kpp.explanations import compare
from kpp.kernels import RBF
from kpp_gpec import GPEC
from kpp_surrogates import ShapExplainer

shap = pytest.importorskip("shap")

RNG = np.random.default_rng(1)
X = RNG.normal(size=(80, 4))
Y = X[:, 0] * X[:, 1] + np.abs(X[:, 2])
BACKGROUND, ROWS = X[:12], X[40:43]
KEY = jax.random.key(0)
FRAME = pd.DataFrame(X, columns=["age", "bmi", "dose", "mass"])


def rough(x):
    x = np.asarray(x)
    return np.sign(x[:, 0]) * x[:, 1] * x[:, 2] + x[:, 3]


@pytest.fixture(scope="module")
def forest():
    return RandomForestRegressor(8, max_depth=4, random_state=0).fit(FRAME, Y)


@pytest.fixture(scope="module")
def classifier():
    return RandomForestClassifier(8, max_depth=4, random_state=0).fit(X, Y > 0.5)


@pytest.mark.slow
def test_trees_over_a_background_have_the_shapley_values_of_all_coalitions(forest):
    tree = shap.TreeExplainer(forest, FRAME[:12], feature_perturbation="interventional")
    found = kpp.explain(forest, FRAME[40:43], explainer="shap", shap_explainer=tree)
    exact = kpp.explain(forest, FRAME[40:43], explainer="kernel-shap", background=FRAME[:12])
    np.testing.assert_allclose(found.values, exact.values, atol=1e-6)  # the leaves of shap's trees are float32
    np.testing.assert_allclose(found.base_values, exact.base_values, atol=1e-6)
    np.testing.assert_allclose(found.predictions, forest.predict(FRAME[40:43]))
    assert found.feature_names == tuple(FRAME)
    record = {"explainer": "shap", "shap_explainer": "TreeExplainer", "feature_perturbation": "interventional"}
    assert found.attrs.items() >= record.items()
    assert found.attrs["additivity_error"] < 1e-6
    assert set(compare({"tree": found, "exact": exact}).data_vars) >= {"values", "distance"}


def test_a_classifier_has_its_classes_as_outputs(classifier):
    tree = shap.TreeExplainer(classifier)
    found = kpp.explain(classifier, ROWS, explainer="shap", shap_explainer=tree)
    np.testing.assert_allclose(found.values, tree(ROWS).values)
    assert found.output_names == ("False", "True")


def test_without_a_predictor_predictions_are_the_sums(forest):
    tree = shap.TreeExplainer(forest)
    found = kpp.explain(None, FRAME[40:43], explainer="shap", shap_explainer=tree)
    np.testing.assert_allclose(found.predictions, forest.predict(FRAME[40:43]), atol=1e-10)
    assert found.feature_names == tuple(FRAME)
    assert found.attrs["predictions"] == "base value plus contributions"


def test_a_predictor_on_another_scale_is_refused(classifier):
    tree = shap.TreeExplainer(classifier)
    with pytest.raises(ValueError, match=r"`predictor` must have the outputs .*shape \(3,\) and .*shape \(3, 2\)"):
        kpp.explain(lambda x: classifier.predict_proba(x)[:, 1], ROWS, explainer="shap", shap_explainer=tree)
    squared = {"explainer": "shap", "shap_explainer": tree}
    with pytest.raises(ValueError, match="base value plus contributions miss its predictions by up to 0"):
        kpp.explain(lambda x: classifier.predict_proba(x) ** 2, ROWS, **squared)
    found = kpp.explain(lambda x: classifier.predict_proba(x) ** 2, ROWS, check_additivity=False, **squared)
    assert found.attrs["additivity_error"] == pytest.approx(float(found.additivity_error().max()))


@pytest.mark.parametrize("kind", ["KernelExplainer", "PermutationExplainer", "SamplingExplainer"])
def test_a_key_decides_what_shap_draws_and_numpy_s_generator_stays(kind):
    explainer = getattr(shap, kind, None) or getattr(shap.explainers, kind)
    explainer = explainer(rough, BACKGROUND)
    options = {"explainer": "shap", "shap_explainer": explainer}
    np.random.seed(5)
    first = kpp.explain(rough, ROWS, rng_key=KEY, **options)
    drawn = np.random.random()
    second = kpp.explain(rough, ROWS, rng_key=KEY, **options)
    np.random.seed(5)
    assert drawn == np.random.random()
    np.testing.assert_array_equal(first.values, second.values)
    assert first.attrs["rng_key"] == [0, 0]
    # Kernel and permutations of 4 features cover all coalitions and orders of their symmetry, samples do not.
    exact = kpp.explain(rough, ROWS, explainer="kernel-shap", background=BACKGROUND)
    tolerance = 1e-8 if kind == "KernelExplainer" else 0.3
    np.testing.assert_allclose(first.values, exact.values, atol=tolerance)


@pytest.mark.slow_variants("draws")
@pytest.mark.parametrize("predictor", ["function", "outputs", "draws"])
def test_all_coalitions_by_name(predictor):
    points, coefficients = RNG.normal(size=(6, 4)), RNG.normal(size=(2, 3, 6))
    predictors = {
        "function": rough,
        "outputs": lambda x: np.stack([rough(x), rough(x) ** 2], axis=1),
        "draws": kpp.RKHSFunction.over_draws(RBF(2.0), points, coefficients, batch_shape=(2, 3)),
    }
    options = {"explainer": "shap", "shap_explainer": "exact", "background": BACKGROUND}
    found = kpp.explain(predictors[predictor], ROWS, **options)
    exact = kpp.explain(predictors[predictor], ROWS, explainer="kernel-shap", background=BACKGROUND)
    assert found.values.dims == exact.values.dims
    np.testing.assert_allclose(found.values, exact.values, atol=1e-12)
    np.testing.assert_allclose(found.base_values, exact.base_values, atol=1e-12)
    assert found.attrs["exact"]


def test_what_a_name_needs_is_asked_for():
    for options, message in (
        ({"shap_explainer": "exact"}, "`background` must be given for the algorithm 'exact'"),
        ({"shap_explainer": "permutation", "background": BACKGROUND}, "`rng_key` must be given, since 'shap' samples"),
        ({"shap_explainer": shap.ExactExplainer}, "`shap_explainer` must be an explainer of shap"),
    ):
        with pytest.raises(TypeError, match=message):
            kpp.explain(rough, ROWS, explainer="shap", **options)
    with pytest.raises(ValueError, match="`shap_explainer`.*tree"):
        kpp.explain(rough, ROWS, explainer="shap", shap_explainer="tree")
    with pytest.raises(TypeError, match="`predictor` must be given"):
        kpp.explain(None, ROWS, explainer="shap", shap_explainer="exact", background=BACKGROUND)


def test_a_function_that_returns_interactions(forest):
    tree = shap.TreeExplainer(forest)
    found = ShapExplainer(lambda rows: tree(rows, interactions=True)).explain(forest, FRAME[40:43])
    np.testing.assert_allclose(found.values, tree(FRAME[40:43]).values, atol=1e-10)
    assert found.interactions is not None
    assert found.attrs["interactions"] == "shap"


@pytest.mark.nightly
def test_gpec_over_trees(classifier, tmp_path):
    tree = shap.TreeExplainer(classifier)
    fitted = GPEC(ShapExplainer(tree), X[:40], output=1, noise=1e-6).fit(classifier, rng_key=KEY)
    found = fitted.explain(X[:40])
    # The process passes the rows that it has seen, up to the noise's standard deviation of 0.001.
    np.testing.assert_allclose(found.values, tree(X[:40]).values[..., 1], atol=0.02)
    assert found.attrs["explained_by"] == "shap"
    by_name = kpp.explain(
        classifier,
        ROWS,
        explainer="gpec",
        base_explainer="shap",
        explainer_options={"shap_explainer": tree},
        background=X[:40],
        rng_key=KEY,
    )
    assert (by_name.variance > 0).all()
    found.save(tmp_path / "explanation.nc")
    assert kpp.Explanation.load(tmp_path / "explanation.nc").dataset.equals(found.dataset)


def test_boosted_trees_on_the_scale_of_log_odds():
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBClassifier(n_estimators=10, max_depth=3).fit(X, Y > 0.5)
    options = {"explainer": "shap", "shap_explainer": shap.TreeExplainer(model)}
    found = kpp.explain(lambda x: model.predict(np.asarray(x), output_margin=True), ROWS, **options)
    np.testing.assert_allclose(found.values, options["shap_explainer"](ROWS).values)
    assert found.attrs["additivity_error"] < 1e-5  # float32
    with pytest.raises(ValueError, match="output_margin=True"):
        kpp.explain(model, ROWS, **options)


@pytest.mark.parametrize("kind", ["DeepExplainer", "GradientExplainer"])
def test_networks_of_pytorch(kind):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    background = torch.as_tensor(BACKGROUND, dtype=torch.float32)

    def predict(x):
        return network(torch.as_tensor(np.array(x), dtype=torch.float32)).detach().numpy()

    explainer = getattr(shap, kind)(network, background)
    explainer.expected_value = predict(BACKGROUND).mean(axis=0)
    exact = kind == "DeepExplainer"
    options = {"explainer": "shap", "shap_explainer": explainer, "check_additivity": exact}
    found = kpp.explain(predict, ROWS, rng_key=KEY, **options)
    # DeepLIFT is a rule for each unit that adds up; the gradients are means over 200 samples.
    assert found.attrs["additivity_error"] < (1e-5 if exact else 0.5)
    assert found.values.shape == (3, 4, 2)
