"""Collider regression as scikit-learn estimators: any regressor or classifier, made to obey what a causal graph says.

The package is imported by its own name, as importing `kpp_models` loads no scikit-learn.
"""

from __future__ import annotations

from kpp_models.estimators.classifier import ProjectedClassifier as ProjectedClassifier
from kpp_models.estimators.kernel_ridge import ProjectedKernelRidge as ProjectedKernelRidge
from kpp_models.estimators.quantile import ProjectedQuantileRegressor as ProjectedQuantileRegressor
from kpp_models.estimators.regressor import ProjectedRegressor as ProjectedRegressor
