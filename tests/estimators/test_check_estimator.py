"""scikit-learn's own checks of estimators, with and without a collider."""

from __future__ import annotations

import pytest
from sklearn.linear_model import LinearRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.utils.estimator_checks import check_estimator

from kpp.causal import Independence
from kpp_models.estimators import ProjectedClassifier, ProjectedQuantileRegressor, ProjectedRegressor

COLLIDER = {"collider": Independence("y", (0,)), "check": False}
INSTANCES = {
    "regressor": ProjectedRegressor(LinearRegression()),
    "projected regressor": ProjectedRegressor(LinearRegression(), gain_folds=2, **COLLIDER),
    "projected classifier": ProjectedClassifier(GaussianNB(), **COLLIDER),
    "projected quantile regressor": ProjectedQuantileRegressor(KNeighborsRegressor(), num_thresholds=9, **COLLIDER),
}
DEFAULTS = {  # forests, kernel ridge, and tests compiled for many shapes
    "regressor": ProjectedRegressor(random_state=0),
    "projected regressor": ProjectedRegressor(collider=Independence("y", (0,)), conditional="kernel-ridge"),
    "classifier": ProjectedClassifier(random_state=0),
    "projected classifier": ProjectedClassifier(collider=Independence("y", (0,)), conditional="forest"),
    "latent classifier": ProjectedClassifier(GaussianNB(), scale="latent", **COLLIDER),
    "quantile regressor": ProjectedQuantileRegressor(random_state=0),
    "projected quantile regressor": ProjectedQuantileRegressor(collider=Independence("y", (0,))),
}


@pytest.mark.filterwarnings("ignore:.*projected probabilities below 0:UserWarning")
@pytest.mark.parametrize("name", INSTANCES)
def test_estimators_pass_the_checks_of_scikit_learn(name):
    check_estimator(INSTANCES[name], on_skip=None)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_pass_the_checks_of_scikit_learn(name):
    check_estimator(DEFAULTS[name], on_skip=None)
