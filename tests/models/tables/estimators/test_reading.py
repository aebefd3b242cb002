"""Estimators and landmark machines read as all of kpp does: masks, dates and text are never taken for numbers."""

import decimal
import functools

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import kpp_models.estimators as estimators
from kpp.kernels import RBF
from kpp_models import LandmarkRidge
from kpp_models.estimators import KernelRidgeRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 2))
TARGETS = X[:, 0] + 0.1 * RNG.normal(size=24)
LABELS = np.where(TARGETS > 0, "up", "down").astype(object)
PAIRS = np.stack([np.arange(24) % 4, (np.arange(24) + 1) % 4], axis=1)

CLASSIFIERS = {
    "GPClassifier": {},
    "KernelLogisticClassifier": {},
    "PairwiseClassifier": {"estimator": LogisticRegression()},
    "PairwiseLogisticRegression": {},
    "ProjectedClassifier": {"estimator": LogisticRegression()},
    "BradleyTerry": {},
}
REGRESSORS = {
    "GPRegressor": {},
    "KernelRidgeRegressor": {},
    "ProjectedRegressor": {"estimator": LinearRegression()},
    "ProjectedQuantileRegressor": {},
    "ProjectedKernelRidge": {},
}
TRANSFORMERS = {"NystroemFeatures": {}, "RandomFourierFeatures": {}}
DATES = np.datetime64("2020-01-01") + np.arange(24)
NO_DATE = np.datetime64("NaT", "D")


def masked(values):
    return np.ma.masked_array(values, np.arange(values.size).reshape(values.shape) == 3)


ROWS = {
    "masked": (masked, "`X` has 1 masked entries"),
    "dates": (lambda x: np.stack([DATES, DATES], axis=1), "got dates or times"),
    "a frame of dates": (lambda x: pd.DataFrame({"x0": DATES, "x1": DATES}), "got dates or times"),
    "durations": (lambda x: x.astype("timedelta64[D]"), "got dates or times"),
    "dates as objects": (lambda x: np.stack([DATES, DATES], axis=1).astype(object), "got dates or times"),
    "text": (lambda x: x.astype(str), "must hold real numbers, got .*text"),
    "text as objects": (lambda x: x.astype(str).astype(object), "must hold real numbers, got .*text"),
    "one text": (lambda x: np.where(np.arange(x.size).reshape(x.shape) == 3, "1", x.astype(object)), "such as '1'"),
}
TARGET = {
    "masked": (masked, "`y` has 1 masked entries"),
    "dates": (lambda y: DATES, "got dates or times"),
    "a series of dates": (lambda y: pd.Series(DATES), "got dates or times"),
    "text": (lambda y: np.arange(24).astype(str), "`y` must hold real numbers, got .*text"),
}
CLASSES = {
    "masked": (masked, "`y` has 1 masked entries"),
    "a missing date": (lambda y: np.where(np.arange(24) == 3, NO_DATE, DATES[np.arange(24) % 2]), "has missing labels"),
    "None": (lambda y: np.where(np.arange(24) == 3, None, y), "`y` has missing labels, 1 of them, the first in row 3"),
    "NA": (lambda y: pd.Series(y, dtype="string").where(np.arange(24) != 3), "`y` has missing labels"),
}


def data_of(name):
    x = PAIRS if name == "BradleyTerry" else X
    return x, LABELS if name in CLASSIFIERS else TARGETS


def estimator_of(name):
    return getattr(estimators, name)(**({**CLASSIFIERS, **REGRESSORS, **TRANSFORMERS}[name]))


@functools.cache
def fitted(name):
    return estimator_of(name).fit(*data_of(name))


def test_the_tables_hold_every_estimator():
    offered = {name for name in vars(estimators) if isinstance(getattr(estimators, name), type)} - {"MatchRows"}
    assert offered == {*CLASSIFIERS, *REGRESSORS, *TRANSFORMERS}


@pytest.mark.parametrize("wrong", ROWS)
@pytest.mark.parametrize("name", [*CLASSIFIERS, *REGRESSORS, *TRANSFORMERS])
def test_no_estimator_is_fitted_to_rows_that_are_not_numbers(name, wrong):
    change, message = ROWS[wrong]
    x, y = data_of(name)
    with pytest.raises(ValueError, match=message):
        estimator_of(name).fit(change(x), y)


@pytest.mark.parametrize("wrong", TARGET)
@pytest.mark.parametrize("name", REGRESSORS)
@pytest.mark.parametrize("read", [np.asarray, lambda x: pd.DataFrame(x, columns=["a", "b"])], ids=["array", "frame"])
def test_no_regressor_is_fitted_to_targets_that_are_not_numbers(name, wrong, read):
    change, message = TARGET[wrong]
    with pytest.raises(ValueError, match=message):
        estimator_of(name).fit(read(X), change(TARGETS))


@pytest.mark.parametrize("wrong", CLASSES)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_no_classifier_is_fitted_to_missing_labels(name, wrong):
    change, message = CLASSES[wrong]
    x, y = data_of(name)
    with pytest.raises(ValueError, match=message):
        estimator_of(name).fit(x, change(y))


def test_numbers_of_items_are_whole():
    x, y = data_of("BradleyTerry")
    with pytest.raises(ValueError, match="`X` must hold the numbers of items, which are whole, got 0.5"):
        estimator_of("BradleyTerry").fit(np.where(x == 0, 0.5, x), y)


@pytest.mark.parametrize("name", ["PairwiseLogisticRegression", "PairwiseClassifier", "BradleyTerry"])
def test_masked_weights_are_refused(name):
    x, y = data_of(name)
    with pytest.raises(ValueError, match="`sample_weight` has 1 masked entries"):
        estimator_of(name).fit(x, y, sample_weight=masked(np.ones(24)))


# A fit of Gaussian processes, of logistic regressions and of projections reads rows by the same functions.
@pytest.mark.slow_variants("KernelRidgeRegressor-masked", "KernelRidgeRegressor-dates")
@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("wrong", ROWS)
@pytest.mark.parametrize("name", ["KernelRidgeRegressor", "ProjectedRegressor", "PairwiseLogisticRegression"])
def test_no_estimator_predicts_at_rows_that_are_not_numbers(name, wrong):
    change, message = ROWS[wrong]
    with pytest.raises(ValueError, match=message):
        fitted(name).predict(change(data_of(name)[0]))


@pytest.mark.slow
def test_numbers_as_objects_are_numbers():
    decimals = np.vectorize(decimal.Decimal, otypes=[object])(X)
    as_numbers = KernelRidgeRegressor(RBF(1.0)).fit(decimals, TARGETS.astype(object)).predict(decimals[:3])
    np.testing.assert_allclose(as_numbers, KernelRidgeRegressor(RBF(1.0)).fit(X, TARGETS).predict(X[:3]), rtol=1e-10)


@pytest.mark.parametrize("argument", ["x", "y"])
@pytest.mark.parametrize("road", ["numpy", "dask"])
def test_a_landmark_machine_refuses_masked_entries_and_dates(argument, road):
    da = pytest.importorskip("dask.array")
    machine = LandmarkRidge(RBF(1.0), 1e-3, landmarks=4, num_held_out=0, criterion="evidence", progress=False)
    data = {"x": X, "y": TARGETS}

    def fit(values):
        given = data | {argument: values}
        if road == "dask":
            given = {name: da.from_array(part, chunks=12, asarray=False) for name, part in given.items()}
        return machine.fit(jax.random.key(0), **given)

    with pytest.raises(ValueError, match=f"`{argument}` has 1 masked entries"):
        fit(masked(data[argument]))
    with pytest.raises(TypeError, match=f"`{argument}` must hold numbers, got an array of datetime64"):
        fit(np.broadcast_to(DATES.reshape(-1, *[1] * (data[argument].ndim - 1)), data[argument].shape))


def test_given_landmarks_are_read_as_points():
    with pytest.raises(ValueError, match="`landmarks` has 1 masked entries"):
        LandmarkRidge(RBF(1.0), 1e-3, landmarks=masked(X), progress=False)
