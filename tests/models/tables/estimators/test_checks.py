"""scikit-learn's own checks of estimators; they pass without an exception."""

from __future__ import annotations

import pytest
from sklearn.base import BaseEstimator
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

# The checks whose odd rows, targets and labels reach what chooses a kernel and hyperparameters. All others look at
# parameters, names, attributes and messages, at how a table is read, which happens before the choice, or at predictions
# of the same fit, which happen after it.
CHECKS_OF_A_CHOICE = {
    "check_classifiers_one_label",
    "check_classifiers_one_label_sample_weights",
    "check_estimators_empty_data_messages",
    "check_estimators_overwrite_params",  # None stays None
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_regressors_int",
    "check_transformer_preserve_dtypes",
}


def checks_of_a_choice(*estimators: BaseEstimator) -> pytest.MarkDecorator:
    every = parametrize_with_checks(list(estimators))
    arguments, pairs = every.args
    # A check with further arguments is the same one on a table in another form.
    chosen = [pair for pair in pairs if pair[1].func.__name__ in CHECKS_OF_A_CHOICE and not pair[1].keywords]
    return pytest.mark.parametrize(arguments, chosen, **every.kwargs)


@parametrize_with_checks([RandomFourierFeatures(RBF(1.0), num_frequencies=5, random_state=0)])
def test_a_cheap_estimator_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


# With the cheap one these have all base classes of the estimators.
@pytest.mark.slow
@parametrize_with_checks(
    [
        GPRegressor(RBF(1.0, 2.0), noise_variance=0.1, mean=0.0),
        KernelLogisticClassifier(RBF(1.0) + 100.0, regularization=1e-3),
    ]
)
def test_an_estimator_of_each_base_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.nightly
@parametrize_with_checks(
    [
        GPClassifier(RBF(1.0, 4.0), mean=0.0),
        KernelRidgeRegressor(RBF(1.0) + 100.0, regularization=1e-3),
        NystroemFeatures(RBF(1.0), num_landmarks=5, random_state=0),
    ]
)
def test_the_other_estimators_pass_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


# Processes choose by the evidence, kernel machines by leaving out rows.
@pytest.mark.slow
@checks_of_a_choice(
    GPRegressor(random_state=0),
    KernelLogisticClassifier(),
    NystroemFeatures(random_state=0),
    RandomFourierFeatures(random_state=0),
)
def test_what_is_not_given_is_chosen_for_all_data_of_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.nightly
@checks_of_a_choice(GPClassifier(random_state=0), KernelRidgeRegressor())
def test_the_others_choose_what_is_not_given_for_all_data_of_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
