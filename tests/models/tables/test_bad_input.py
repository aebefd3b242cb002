"""Bad input is refused with a message that names the argument, what came and what is needed."""

import dataclasses
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpyro import distributions as dist

import kpp
from kpp.kernels import RBF
from kpp_models import GPClassification, GPRegression, KernelLogistic, KernelRidge
from oracles.kernels import rbf

X = np.random.default_rng(0).normal(size=(6, 2))
Y = np.array([0.0, 1.0, 0.0, 1.0, 1.0, 0.0])
MODELS = {
    "GPRegression": GPRegression(RBF(1.0), 0.1),
    "GPClassification": GPClassification(RBF(1.0)),
    "KernelRidge": KernelRidge(RBF(1.0), 0.1),
    "KernelLogistic": KernelLogistic(RBF(1.0), 0.1),
}


def with_value(array, value):
    array = array.copy()
    array.flat[1] = value
    return array


DATA = {
    "NaN in x": (with_value(X, np.nan), Y, r"`x` must be finite, got 1 NaN"),
    "infinity in x": (with_value(X, np.inf), Y, r"`x` must be finite, got 0 NaN and 1 infinite"),
    "no rows": (X[:0], Y[:0], r"`x` must have at least one row.*\(0, 2\)"),
    "one-dimensional x": (X[:, 0], Y, r"`x` must have shape \(n, d\).*`x\[:, None\]`"),
    "three-dimensional x": (X[None], Y, r"`x` must have shape \(n, d\), got shape \(1, 6, 2\)"),
    "text in x": (np.full((6, 2), "a"), Y, r"`x` must hold real numbers"),
    "NaN in y": (X, with_value(Y, np.nan), r"`y` must be finite, got 1 NaN"),
    "infinity in y": (X, with_value(Y, -np.inf), r"`y` must be finite"),
    "two-dimensional y": (X, Y[:, None], r"`y` must have shape \(n,\), got shape \(6, 1\); write `y\[:, 0\]`"),
    "fewer targets than points": (X, Y[:5], r"`x` and `y` must have the same number of rows, got 6 and 5"),
    "missing value in a data frame": (pd.DataFrame(with_value(X, np.nan), columns=["a", "b"]), Y, r"`x` has missing"),
}
LABELS = {
    "three classes": (with_value(Y, 2.0), r"`y` must hold two classes, got 3: 0, 1, 2"),
    "one class": (np.ones(6), r"`y` must hold two classes, got only 1 in 6 rows"),
    "numbers": (np.arange(6) / 3, r"`y` must hold two classes, got 6: 0, 0.33.*"),
    "three texts": (["a", "b", "c", "a", "b", "c"], r"`y` must hold two classes, got 3: 'a', 'b', 'c'"),
    "text and numbers": (np.array(["a", 1, "a", 1, "a", 1], object), r"`y` must hold real numbers"),
    "a missing label": (["a", None, "b", "a", "b", "a"], r"`y` has missing labels, 1 of them, the first in row 1"),
    "a column of text": (np.array([["a"], ["b"]] * 3), r"`y` must have shape \(n,\).*`y\[:, 0\]`"),
}


@pytest.mark.parametrize("case", DATA)
@pytest.mark.parametrize("model", MODELS)
def test_bad_data_is_refused(model, case):
    x, y, message = DATA[case]
    with pytest.raises(ValueError, match=message):
        MODELS[model].fit(jax.random.key(0), x, y)


@pytest.mark.parametrize("case", LABELS)
@pytest.mark.parametrize("model", ["GPClassification", "KernelLogistic"])
def test_bad_labels_are_refused(model, case):
    y, message = LABELS[case]
    with pytest.raises(ValueError, match=message):
        MODELS[model].fit(jax.random.key(0), X, y)


def test_booleans_are_labels():
    _, data, _ = MODELS["GPClassification"].prepare(X, Y.astype(bool))
    np.testing.assert_array_equal(data["y"], Y)


LABELED = {
    "text": (["no", "yes", "no", "yes", "yes", "no"], ("no", "yes")),
    "text in an array": (np.array(["no", "yes", "no", "yes", "yes", "no"]), ("no", "yes")),
    "-1 and 1": (2 * Y - 1, (-1, 1)),
    "booleans": (Y.astype(bool), (False, True)),
    "numbers": (np.where(Y == 1, 0.5, 0.25), (0.25, 0.5)),
    "a series": (pd.Series(np.where(Y == 1, "b", "a")), ("a", "b")),
    "a categorical column": (pd.Series(pd.Categorical(np.where(Y == 1, "a", "b"), ["b", "a", "c"])), ("b", "a")),
}


@pytest.mark.parametrize("case", LABELED)
@pytest.mark.parametrize("name", ["GPClassification", "KernelLogistic"])
def test_labels_may_be_any_two_values(name, case):
    labels, classes = LABELED[case]
    model, data, _ = MODELS[name].prepare(X, labels)
    np.testing.assert_array_equal(data["y"], Y)
    assert model.classes == classes
    assert [type(label) for label in model.classes] == [type(label) for label in classes]


@pytest.mark.nightly_variants("KernelLogistic")
@pytest.mark.slow_variants("KernelLogistic", "GPClassification")
@pytest.mark.parametrize("name", ["GPClassification", "KernelLogistic"])
def test_a_fit_knows_its_classes(name, tmp_path):
    labels = np.where(Y == 1, "yes", "no")
    inference = kpp.MAP(progress=False)
    fit = MODELS[name].fit(jax.random.key(0), X, labels, inference=inference, num_prior_samples=0)
    chance = fit.predict(X)["probability"]
    assert chance.attrs["class"] == "yes"
    fit.save(tmp_path / "fit.nc")
    assert kpp.Fit.load(tmp_path / "fit.nc").model.classes == ("no", "yes")
    turned, data, schema = dataclasses.replace(MODELS[name], classes=("yes", "no")).prepare(X, labels)
    other = kpp.Fit(turned, None, data, schema, {}, inference).predict(X)["probability"]
    assert other.attrs["class"] == "no"
    np.testing.assert_allclose(other, 1 - chance, atol=1e-8)  # Newton's method ends within 1e-11 of the mode


@pytest.mark.parametrize("classes", ["ab", 3, ("a",), ("a", "a"), (1, 1.0)])
@pytest.mark.parametrize("name", ["GPClassification", "KernelLogistic"])
def test_classes_must_be_two_labels(name, classes):
    with pytest.raises(ValueError, match="`classes` must be (a tuple of two|two different) labels"):
        dataclasses.replace(MODELS[name], classes=classes)


def test_classes_must_be_those_of_the_labels():
    with pytest.raises(ValueError, match=r"`classes` must be the two labels of `y`, 0, 1, got 'a', 'b'"):
        dataclasses.replace(MODELS["KernelLogistic"], classes=("a", "b")).prepare(X, Y)


def test_unknown_features_are_refused():
    frame = pd.DataFrame(X, columns=["age", "dose"])
    with pytest.raises(ValueError, match="'agee'"):
        GPRegression(RBF(1.0).on(("agee",)), 0.1).prepare(frame, Y)
    model, _, _ = GPRegression(RBF(1.0).on(("dose",)), 0.1).prepare(frame, Y)
    found = jax.jit(lambda x: model.kernel.gram(x))(X)
    np.testing.assert_allclose(found, rbf(X[:, 1:], X[:, 1:]), rtol=1e-12)


@pytest.mark.parametrize("lengthscale", [jnp.ones(3), dist.LogNormal(0.0, 1.0).expand([3])], ids=["numbers", "prior"])
def test_a_kernel_for_other_columns_is_refused(lengthscale):
    with pytest.raises(ValueError, match=r"`kernel` cannot be evaluated on `x` of shape \(6, 2\): .*3"):
        GPRegression(RBF(lengthscale), 0.1).prepare(X, Y)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: GPRegression(RBF(1.0), -0.1), r"`noise_variance` must be at least 0, got -0.1"),
        (lambda: GPRegression(RBF(1.0), np.ones(3)), r"`noise_variance` must be one number.*\(3,\)"),
        (
            lambda: GPRegression(RBF(1.0), dist.HalfNormal(1.0).expand([2])),
            r"`noise_variance`.*a prior of shape \(2,\)",
        ),
        (lambda: GPRegression(RBF(1.0), 0.1, np.nan), r"`mean` must be finite"),
        (lambda: GPClassification(RBF(1.0), link="cauchit"), r"`link` must be one of \('logit', 'probit'\).*'cauchit'"),
        (
            lambda: GPClassification(RBF(1.0), latent="vi"),
            r"`latent` must be one of \('laplace', 'sample', 'inducing'\).*'vi'",
        ),
    ],
)
def test_bad_fields_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_an_integer_is_no_random_key():
    with pytest.raises(TypeError, match="rng_key"):
        MODELS["GPRegression"].fit(0, X, Y)


def test_predicting_checks_its_points():
    model, data, schema = MODELS["KernelRidge"].prepare(X, Y)
    fit = kpp.Fit(model, None, data, schema, {}, kpp.MAP())
    with pytest.raises(ValueError, match=r"`x` must have 2 columns"):
        fit.predict(np.ones((3, 4)))
    with pytest.raises(ValueError, match=r"`x` must be finite"):
        fit.predict(np.full((1, 2), np.nan))


@pytest.mark.slow_variants("False")
@pytest.mark.nightly_variants("True")
@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_single_precision_works_and_warns_once(caplog, monkeypatch, long):
    monkeypatch.setattr("kpp.foundation.validation._warned_float32", False)
    with jax.enable_x64(False), caplog.at_level(logging.WARNING, logger="kpp"):
        # Numbers become arrays of the precision that is set, so the models are built here.
        for model in (GPRegression(RBF(1.0), 0.1), GPClassification(RBF(1.0))):
            model, data, _ = model.prepare(X, Y)
            assert data["x"].dtype == jnp.float32
            if isinstance(model, GPClassification) and not long:
                continue
            found = jax.jit(lambda data, m=model: (m.predictive({}, data, data["x"]), m.log_likelihood({}, data)))(data)
            for value in jax.tree.leaves(found):
                assert value.dtype == jnp.float32
                assert np.isfinite(value).all()
    warnings = [record for record in caplog.records if "float32" in record.message]
    assert len(warnings) == 1
    assert 'jax.config.update("jax_enable_x64", True)' in warnings[0].message
