"""scikit-learn's own checks of the estimators of preferences; most of its tables are no tables of pairs."""

from __future__ import annotations

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from kpp_models.estimators import BradleyTerry, PairwiseClassifier, PairwiseLogisticRegression

ODD = "the check has rows of an odd number of columns, which are not two items side by side"
NOT_NUMBERS = "the check has rows of other numbers than those of two different items"
ODD_CHECKS = (
    "check_classifiers_one_label",
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_estimators_dtypes",
    "check_estimators_nan_inf",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_fit2d_predict1d",
    "check_fit_score_takes_y",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_pipeline_consistency",
    "check_sample_weights_list",
    "check_supervised_y_2d",
)
NUMBER_CHECKS = (
    "check_all_zero_sample_weights_error",
    "check_classifier_data_not_an_array",
    "check_classifiers_classes",
    "check_classifiers_one_label_sample_weights",
    "check_classifiers_train",
    "check_decision_proba_consistency",
    "check_dtype_object",
    "check_estimators_fit_returns_self",
    "check_estimators_overwrite_params",
    "check_fit2d_1feature",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_positive_only_tag_during_fit",
    "check_readonly_memmap_input",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weights_not_an_array",
    "check_sample_weights_not_overwritten",
    "check_sample_weights_pandas_series",
    "check_sample_weights_shape",
)


def expected_failures(estimator) -> dict[str, str]:
    if not isinstance(estimator, BradleyTerry):
        return dict.fromkeys(ODD_CHECKS, ODD)
    # One label and labels of several kinds are refused before the rows are looked at.
    return dict.fromkeys((*ODD_CHECKS[1:], *NUMBER_CHECKS), NOT_NUMBERS)


def checks_of(*estimators):
    return parametrize_with_checks(list(estimators), expected_failed_checks=expected_failures, xfail_strict=True)


pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")


@pytest.mark.slow
@checks_of(BradleyTerry())
def test_a_ranking_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@checks_of(PairwiseLogisticRegression(), PairwiseClassifier(LogisticRegression()))
def test_classifiers_of_pairs_pass_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
