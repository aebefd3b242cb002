"""`kpp.explain`: names and options become an explainer, predictors and tables what it needs."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

import kpp
from kpp import registry
from kpp.explanations import AbstractExplainer, Explanation, resolve
from kpp.functions import RKHSFunction
from kpp.games import AbstractValueFunction, Interventional
from kpp.kernels import RBF, Linear

RNG = np.random.default_rng(0)
BACKGROUND = RNG.normal(size=(8, 2))
X = RNG.normal(size=(3, 2))
WEIGHTS = np.array([2.0, -1.0])


def linear(x):
    return jnp.asarray(x) @ WEIGHTS


class Recorder(AbstractExplainer):
    """Keeps what it is given in the attributes of an explanation that says nothing else."""

    requires: ClassVar[Any] = "rkhs_function"
    additive: ClassVar[bool] = False
    value_function: AbstractValueFunction
    method: str = "auto"
    shared: int = 0

    def explain(self, predictor, x, *, rng_key=None):
        _, x, schema = resolve(predictor, x, self.requires)
        attrs = {"method": self.method, "shared": self.shared, "key": rng_key is not None}
        background = getattr(self.value_function, "background", None)
        attrs["background"] = None if background is None else np.asarray(background).tolist()
        attrs["value_function"] = type(self.value_function).__name__
        return Explanation.create(np.zeros(x.shape), 0.0, np.zeros(len(x)), x, schema=schema, attrs=attrs)


class Sharing(AbstractValueFunction):
    """A value function with an option of the same name as the explainer's."""

    own: int
    shared: int = 0

    def __call__(self, function, x, coalitions):
        raise NotImplementedError

    def base(self, function):
        raise NotImplementedError


class Probabilist(AbstractExplainer):
    """Needs probabilities and has nothing to set."""

    requires: ClassVar[Any] = "probabilities"
    additive: ClassVar[bool] = False

    def explain(self, predictor, x, *, rng_key=None):
        function, x, schema = resolve(predictor, x, self.requires)
        return Explanation.create(np.zeros(x.shape), 0.0, np.asarray(function(x))[:, 1], x, schema=schema)


@pytest.fixture(autouse=True)
def names(monkeypatch, linear_shap):
    """The registry with the explainers and value functions of this file."""
    known = {
        "explainers": {"recorder": Recorder, "probabilist": Probabilist, "linear-shap": linear_shap},
        "value_functions": {"interventional": Interventional, "sharing": Sharing},
    }
    genuine = registry.get
    monkeypatch.setattr(registry, "get", lambda kind, name: known[kind].get(name) or genuine(kind, name))


@pytest.fixture(scope="module")
def function():
    return RKHSFunction(RBF(lengthscale=1.0), BACKGROUND, np.ones(8))


def test_a_name_finds_the_explainer_and_the_numbers_are_right():
    explanation = kpp.explain(linear, X, explainer="linear-shap", background=BACKGROUND)
    np.testing.assert_allclose(explanation.values, WEIGHTS * (X - BACKGROUND.mean(axis=0)), atol=1e-12)
    assert float(explanation.additivity_error().max()) < 1e-12


@pytest.mark.slow
def test_draws_of_a_function_become_draws_of_the_explanation():
    coefficients = RNG.normal(size=(2, 4, 8))
    draws = RKHSFunction.over_draws(Linear(), BACKGROUND, coefficients, 0.5, batch_shape=(2, 4))
    explanation = kpp.explain(draws, X, explainer="linear-shap", background=BACKGROUND)
    assert explanation.values.dims == ("chain", "draw", "instance", "feature")
    weights = coefficients @ BACKGROUND
    expected = weights[..., None, :] * (X - BACKGROUND.mean(axis=0))
    np.testing.assert_allclose(explanation.values, expected, atol=1e-12)


def test_options_go_where_they_belong(function):
    options = {"explainer": "recorder", "value_function": "interventional", "background": BACKGROUND}
    attrs = kpp.explain(function, X, method="slow", rng_key=jax.random.key(0), **options).attrs
    assert attrs["method"] == "slow"
    assert attrs["key"] is True
    assert attrs["value_function"] == "Interventional"
    np.testing.assert_array_equal(attrs["background"], BACKGROUND)


def test_an_option_of_both_goes_to_the_explainer(function):
    attrs = kpp.explain(function, X, explainer="recorder", value_function="sharing", own=1, shared=3).attrs
    assert attrs["shared"] == 3


def test_ready_made_objects_are_taken(function):
    value_function = Interventional(BACKGROUND)
    attrs = kpp.explain(function, X, explainer="recorder", value_function=value_function).attrs
    assert attrs["value_function"] == "Interventional"
    attrs = kpp.explain(function, X, explainer=Recorder(value_function, method="own")).attrs
    assert attrs["method"] == "own"


def test_data_frames_are_read_by_their_columns(function):
    frame = pd.DataFrame(X, columns=["a", "b"])
    background = pd.DataFrame(BACKGROUND[:, ::-1], columns=["b", "a"])
    explanation = kpp.explain(
        function, frame, explainer="recorder", value_function="interventional", background=background
    )
    assert explanation.feature_names == ("a", "b")
    np.testing.assert_array_equal(explanation.attrs["background"], BACKGROUND)


@pytest.mark.parametrize("as_frame", [False, True])
@pytest.mark.parametrize("estimator", [KernelRidge(kernel="rbf"), make_pipeline(StandardScaler(), SVR())])
def test_a_kernel_method_of_scikit_learn_is_converted_and_its_names_kept(estimator, as_frame):
    frame = pd.DataFrame(BACKGROUND, columns=["a", "b"])
    fitted = estimator.fit(frame, BACKGROUND[:, 0])
    x = pd.DataFrame(X[:, ::-1], columns=["b", "a"]) if as_frame else X
    explanation = kpp.explain(fitted, x, explainer="recorder", value_function="interventional", background=frame)
    assert explanation.feature_names == ("a", "b")
    np.testing.assert_array_equal(explanation.data, X)


def test_other_estimators_are_asked_for_what_the_explainer_needs():
    forest = RandomForestRegressor(n_estimators=2, random_state=0).fit(BACKGROUND, BACKGROUND[:, 0])
    explanation = kpp.explain(forest, X, explainer="linear-shap", background=BACKGROUND)
    np.testing.assert_array_equal(explanation.predictions, forest.predict(X))
    logistic = LogisticRegression().fit(BACKGROUND, BACKGROUND[:, 0] > 0)
    explanation = kpp.explain(logistic, X, explainer="probabilist")
    np.testing.assert_array_equal(explanation.predictions, logistic.predict_proba(X)[:, 1])


RECORDER = {"explainer": "recorder", "value_function": "interventional", "background": BACKGROUND}
WRONG_OPTIONS = [
    (
        {**RECORDER, "metod": 1},
        r"unknown options `metod`: explainer 'recorder' takes \['method', 'shared'\]; value",
    ),
    ({**RECORDER, "metod": 1}, r"value function 'interventional' takes \['background'"),
    ({"explainer": "recorder"}, "value function 'interventional' needs `background`"),
    ({"explainer": "recorder", "grid": BACKGROUND}, r"unknown options `grid`"),
    ({"explainer": "recorder", "value_function": "interventional"}, "'interventional' needs `background`"),
    ({"explainer": "recorder", "value_function": "sharing"}, "value function 'sharing' needs `own`"),
    ({"explainer": "recorder", "value_function": Interventional(BACKGROUND), "background": X}, "unknown options"),
    ({"explainer": "recorder", "value_function": 3}, "value_function"),
    ({"explainer": "linear-shap"}, "explainer 'linear-shap' needs `background`"),
    ({"explainer": "linear-shap", "value_function": "sharing"}, "takes no `value_function`"),
    ({"explainer": "linear-shap", "background": BACKGROUND, "nodes": 3}, r"unknown options `nodes`"),
    ({"explainer": Recorder(Interventional(BACKGROUND)), "method": "slow"}, r"ready-made, so its options \['method'\]"),
    ({"explainer": 3}, "explainer"),
    ({**RECORDER, "rng_key": 0}, "rng_key"),
]


def test_the_default_game_is_interventional(function):
    attrs = kpp.explain(function, X, explainer="recorder", background=BACKGROUND).attrs
    assert attrs["value_function"] == "Interventional"


@pytest.mark.parametrize(("options", "message"), WRONG_OPTIONS)
def test_wrong_options_are_a_type_error(function, options, message):
    with pytest.raises(TypeError, match=message):
        kpp.explain(function, X, **options)


NAMES = [
    ({"explainer": "rekorder", "background": BACKGROUND}, "rekorder"),
    ({"explainer": "recorder", "value_function": "interventionel"}, "interventional"),
]


@pytest.mark.parametrize(("options", "message"), NAMES)
def test_unknown_names_are_a_value_error(function, options, message):
    with pytest.raises(ValueError, match=message):
        kpp.explain(function, X, **options)


PREDICTORS = [
    (linear, "a function of unknown form"),
    ("ridge", "`predictor` is a builtins.str"),
    (RandomForestRegressor(), "must be one of KernelRidge"),
]


@pytest.mark.parametrize(("predictor", "message"), PREDICTORS)
def test_the_wrong_predictor_is_a_type_error(predictor, message):
    with pytest.raises(TypeError, match=message):
        kpp.explain(predictor, X, **RECORDER)


BAD_NUMBERS = [
    ({"background": np.full((3, 2), np.nan)}, "`background` must be finite, got 6 NaN"),
    ({"background": BACKGROUND[0]}, r"`background` must have shape \(n, d\)"),
    ({"background": pd.DataFrame({"a": ["u", "v"]})}, r"`background` holds text in \['a'\]"),
    ({"x": X[0]}, r"`x` must have shape \(n, d\)"),
    ({"x": X[:, :1]}, "`x` must have 2 columns"),
    ({"x": np.full((1, 2), np.inf)}, "`x` must be finite"),
    (
        {"x": pd.DataFrame(X, columns=["a", "b"]), "background": pd.DataFrame({"a": [1.0]})},
        r"`background` lacks .*\['b'\]",
    ),
]


@pytest.mark.parametrize(("change", "message"), BAD_NUMBERS)
def test_bad_numbers_are_a_value_error(function, change, message):
    options = {**RECORDER, "x": X, **change}
    with pytest.raises(ValueError, match=message):
        kpp.explain(function, options.pop("x"), **options)
