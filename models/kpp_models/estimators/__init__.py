"""scikit-learn estimators: Gaussian processes, kernel machines, features, collider regression, preferences.

The package is imported by its own name, because importing `kpp_models` does not load scikit-learn.
"""

from __future__ import annotations

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp_models.colliders.estimators.classifier import ProjectedClassifier as ProjectedClassifier
from kpp_models.colliders.estimators.kernel_ridge import ProjectedKernelRidge as ProjectedKernelRidge
from kpp_models.colliders.estimators.quantile import ProjectedQuantileRegressor as ProjectedQuantileRegressor
from kpp_models.colliders.estimators.regressor import ProjectedRegressor as ProjectedRegressor
from kpp_models.preferences.estimators.pair_rows import MatchRows as MatchRows
from kpp_models.preferences.estimators.pair_rows import match_rows as match_rows
from kpp_models.preferences.estimators.pairwise import BradleyTerry as BradleyTerry
from kpp_models.preferences.estimators.pairwise import PairwiseClassifier as PairwiseClassifier
from kpp_models.preferences.estimators.pairwise import PairwiseLogisticRegression as PairwiseLogisticRegression
from kpp_models.tables.estimators.features import NystroemFeatures as NystroemFeatures
from kpp_models.tables.estimators.features import RandomFourierFeatures as RandomFourierFeatures
from kpp_models.tables.estimators.gaussian_processes import GPClassifier as GPClassifier
from kpp_models.tables.estimators.gaussian_processes import GPRegressor as GPRegressor
from kpp_models.tables.estimators.kernel_machines import KernelLogisticClassifier as KernelLogisticClassifier
from kpp_models.tables.estimators.kernel_machines import KernelRidgeRegressor as KernelRidgeRegressor

_guard_exports(globals())
