"""NumPyro models built on kpp: Gaussian processes and kernel machines.

The models are loaded on first use (PEP 562), so that finding this plugin costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import kpp

if TYPE_CHECKING:
    from kpp_models.aggregate import AbstractAggregateModel as AbstractAggregateModel
    from kpp_models.aggregate_queries import aggregate_posterior as aggregate_posterior
    from kpp_models.bagg_gp import BaggGP as BaggGP
    from kpp_models.bagg_gp import VBagg as VBagg
    from kpp_models.bayes_imp import IME as IME
    from kpp_models.bayes_imp import IMP as IMP
    from kpp_models.bayes_imp import BayesIME as BayesIME
    from kpp_models.bayes_imp import BayesIMP as BayesIMP
    from kpp_models.causal_link import CausalLink as CausalLink
    from kpp_models.centroids import CentroidGP as CentroidGP
    from kpp_models.classification import GPClassification as GPClassification
    from kpp_models.classification import gp_classification as gp_classification
    from kpp_models.cmp import CMP as CMP
    from kpp_models.collider_regression import ColliderRegression as ColliderRegression
    from kpp_models.collider_ridge import ColliderRidge as ColliderRidge
    from kpp_models.distributions import GaussianProcessMarginal as GaussianProcessMarginal
    from kpp_models.distributions import LaplaceBernoulliMarginal as LaplaceBernoulliMarginal
    from kpp_models.effect_model import AbstractEffectModel as AbstractEffectModel
    from kpp_models.effect_queries import argmin_posterior as argmin_posterior
    from kpp_models.effect_queries import contrast as contrast
    from kpp_models.interventions import InterventionData as InterventionData
    from kpp_models.logistic import KernelLogistic as KernelLogistic
    from kpp_models.means import LinearMean as LinearMean
    from kpp_models.mediation import mediate as mediate
    from kpp_models.operator_uncertainty import operator_amplitude as operator_amplitude
    from kpp_models.preference_gp import GPGP as GPGP
    from kpp_models.preference_gp import PGP as PGP
    from kpp_models.preference_gp import PreferenceGP as PreferenceGP
    from kpp_models.preference_logistic import PreferenceLogistic as PreferenceLogistic
    from kpp_models.preference_queries import duel as duel
    from kpp_models.preference_queries import preference_matrix as preference_matrix
    from kpp_models.preference_queries import sample_preferences as sample_preferences
    from kpp_models.preference_ridge import PreferenceRidge as PreferenceRidge
    from kpp_models.regression import GPRegression as GPRegression
    from kpp_models.regression import gp_regression as gp_regression
    from kpp_models.ridge import KernelRidge as KernelRidge
    from kpp_models.sampling_effect import SamplingEffect as SamplingEffect
    from kpp_models.selection import Selection as Selection
    from kpp_models.shapley_regularization import RestrictedShapleyRegularized as RestrictedShapleyRegularized
    from kpp_models.shapley_regularization import ShapleyRegularized as ShapleyRegularized

_EXPORTS = {
    "AbstractAggregateModel": "aggregate",
    "AbstractEffectModel": "effect_model",
    "BayesIME": "bayes_imp",
    "BayesIMP": "bayes_imp",
    "CausalLink": "causal_link",
    "IME": "bayes_imp",
    "IMP": "bayes_imp",
    "InterventionData": "interventions",
    "BaggGP": "bagg_gp",
    "aggregate_posterior": "aggregate_queries",
    "argmin_posterior": "effect_queries",
    "contrast": "effect_queries",
    "CMP": "cmp",
    "CentroidGP": "centroids",
    "ColliderRegression": "collider_regression",
    "ColliderRidge": "collider_ridge",
    "GPClassification": "classification",
    "GPGP": "preference_gp",
    "GPRegression": "regression",
    "GaussianProcessMarginal": "distributions",
    "KernelLogistic": "logistic",
    "KernelRidge": "ridge",
    "LaplaceBernoulliMarginal": "distributions",
    "LinearMean": "means",
    "PGP": "preference_gp",
    "PreferenceGP": "preference_gp",
    "PreferenceLogistic": "preference_logistic",
    "PreferenceRidge": "preference_ridge",
    "RestrictedShapleyRegularized": "shapley_regularization",
    "SamplingEffect": "sampling_effect",
    "Selection": "selection",
    "ShapleyRegularized": "shapley_regularization",
    "VBagg": "bagg_gp",
    "duel": "preference_queries",
    "gp_classification": "classification",
    "gp_regression": "regression",
    "mediate": "mediation",
    "operator_amplitude": "operator_uncertainty",
    "preference_matrix": "preference_queries",
    "sample_preferences": "preference_queries",
}


@kpp.hookimpl
def register_kernels() -> dict[str, type]:
    """Offer the kernels of this package."""
    from kpp_models.shapley_regularization import RestrictedShapleyRegularized, ShapleyRegularized

    return {kernel.__name__: kernel for kernel in (RestrictedShapleyRegularized, ShapleyRegularized)}


@kpp.hookimpl
def register_models() -> dict[str, type]:
    """Offer the models of this package."""
    from kpp_models.bagg_gp import BaggGP, VBagg
    from kpp_models.bayes_imp import IME, IMP, BayesIME, BayesIMP
    from kpp_models.centroids import CentroidGP
    from kpp_models.classification import GPClassification
    from kpp_models.cmp import CMP
    from kpp_models.collider_regression import ColliderRegression
    from kpp_models.collider_ridge import ColliderRidge
    from kpp_models.logistic import KernelLogistic
    from kpp_models.preference_gp import GPGP, PGP, PreferenceGP
    from kpp_models.regression import GPRegression
    from kpp_models.ridge import KernelRidge
    from kpp_models.sampling_effect import SamplingEffect

    aggregates = (CMP, BaggGP, CentroidGP, VBagg)
    effects = (IME, IMP, BayesIME, BayesIMP, SamplingEffect)
    colliders = (ColliderRegression, ColliderRidge)
    preferences = (GPGP, PGP, PreferenceGP)
    tables = (GPClassification, GPRegression, KernelLogistic, KernelRidge)
    models = (*aggregates, *effects, *colliders, *preferences, *tables)
    named: dict[str, type] = {model.__name__: model for model in models}
    return named | {"preference-gp": PreferenceGP}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'kpp_models' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"kpp_models.{_EXPORTS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
