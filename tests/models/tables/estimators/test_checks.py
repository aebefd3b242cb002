"""scikit-learn's own checks of estimators; they pass without an exception."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from kpp.kernels import RBF
from kpp_models.estimators import (
    GPClassifier,
    GPRegressor,
    KernelLogisticClassifier,
    KernelRidgeRegressor,
    NystroemFeatures,
    RandomFourierFeatures,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*:sklearn.exceptions.SkipTestWarning")


@parametrize_with_checks([RandomFourierFeatures(RBF(1.0), num_frequencies=5, random_state=0)])
def test_a_cheap_estimator_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        GPRegressor(RBF(1.0, 2.0), noise_variance=0.1, mean=0.0),
        GPClassifier(RBF(1.0, 4.0), mean=0.0),
        KernelRidgeRegressor(RBF(1.0) + 100.0, regularization=1e-3),
        KernelLogisticClassifier(RBF(1.0) + 100.0, regularization=1e-3),
        NystroemFeatures(RBF(1.0), num_landmarks=5, random_state=0),
        # What is not given is chosen.
        GPRegressor(random_state=0),
        GPClassifier(random_state=0),
        KernelRidgeRegressor(),
        KernelLogisticClassifier(),
        NystroemFeatures(random_state=0),
        RandomFourierFeatures(random_state=0),
    ]
)
def test_all_estimators_pass_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
