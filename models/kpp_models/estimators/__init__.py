"""scikit-learn estimators: collider regression by any regressor or classifier, and baselines for preferences.

The package is imported by its own name, as importing `kpp_models` loads no scikit-learn.
"""

from __future__ import annotations

from kpp_models.estimators.bradley_terry import BradleyTerry as BradleyTerry
from kpp_models.estimators.classifier import ProjectedClassifier as ProjectedClassifier
from kpp_models.estimators.kernel_ridge import ProjectedKernelRidge as ProjectedKernelRidge
from kpp_models.estimators.pair_rows import MatchRows as MatchRows
from kpp_models.estimators.pair_rows import match_rows as match_rows
from kpp_models.estimators.pairwise import PairwiseClassifier as PairwiseClassifier
from kpp_models.estimators.pairwise import PairwiseLogisticRegression as PairwiseLogisticRegression
from kpp_models.estimators.quantile import ProjectedQuantileRegressor as ProjectedQuantileRegressor
from kpp_models.estimators.regressor import ProjectedRegressor as ProjectedRegressor
