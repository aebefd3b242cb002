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
FALSE = Independence("y", (0,))
LONG = {  # forests, kernel ridge, and tests compiled for many shapes
    "default regressor": ProjectedRegressor(random_state=0),
    "tested regressor": ProjectedRegressor(
        LinearRegression(), collider=FALSE, conditional="kernel-ridge", gain_folds=None
    ),
    "default classifier": ProjectedClassifier(random_state=0),
    "tested classifier": ProjectedClassifier(GaussianNB(), collider=FALSE),
    "latent classifier": ProjectedClassifier(GaussianNB(), scale="latent", **COLLIDER),
    "default quantile regressor": ProjectedQuantileRegressor(random_state=0),
}


@pytest.mark.slow_variants("projected classifier", "projected quantile regressor", "projected regressor")
@pytest.mark.filterwarnings("ignore:.*projected probabilities below 0:UserWarning")
@pytest.mark.parametrize("name", INSTANCES)
def test_estimators_pass_the_checks_of_scikit_learn(name):
    check_estimator(INSTANCES[name], on_skip=None)


@pytest.mark.nightly_variants(
    "default regressor", "tested regressor", "tested classifier", "default classifier", "default quantile regressor"
)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
@pytest.mark.parametrize("name", LONG)
def test_more_of_them_pass_the_checks_of_scikit_learn(name):
    check_estimator(LONG[name], on_skip=None)
