"""NumPyro models built on kpp: Gaussian processes and kernel machines.

The models are listed in `__init__.pyi` and loaded on first use, so that the discovery of this plugin takes no time.
"""

from __future__ import annotations

import lazy_loader

import kpp

__getattr__, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


@kpp.hookimpl
def register_kernels() -> dict[str, type]:
    """Register the kernels of this package."""
    from kpp_models.tables.shapley_regularization import RestrictedShapleyRegularized, ShapleyRegularized

    return {kernel.__name__: kernel for kernel in (RestrictedShapleyRegularized, ShapleyRegularized)}


@kpp.hookimpl
def register_models() -> dict[str, type]:
    """Register the models of this package."""
    from kpp_models.aggregates.bagg_gp import BaggGP, VBagg
    from kpp_models.aggregates.centroids import CentroidGP
    from kpp_models.aggregates.cmp import CMP
    from kpp_models.colliders.collider_regression import ColliderRegression
    from kpp_models.colliders.collider_ridge import ColliderRidge
    from kpp_models.effects.bayes_imp import IME, IMP, BayesIME, BayesIMP
    from kpp_models.effects.sampling_effect import SamplingEffect
    from kpp_models.preferences.many_matches import PreferenceLogistic, PreferenceRidge
    from kpp_models.preferences.preference_gp import GPGP, PGP, PreferenceGP
    from kpp_models.preferences.ranking_gp import RankingGP
    from kpp_models.tables.classification import GPClassification
    from kpp_models.tables.generalized import GeneralizedGP
    from kpp_models.tables.logistic import KernelLogistic
    from kpp_models.tables.multi_latent import MultiLatentGP
    from kpp_models.tables.regression import GPRegression
    from kpp_models.tables.ridge import KernelRidge

    aggregates = (CMP, BaggGP, CentroidGP, VBagg)
    effects = (IME, IMP, BayesIME, BayesIMP, SamplingEffect)
    colliders = (ColliderRegression, ColliderRidge)
    preferences = (GPGP, PGP, PreferenceGP, PreferenceLogistic, PreferenceRidge, RankingGP)
    tables = (GeneralizedGP, GPClassification, GPRegression, KernelLogistic, KernelRidge, MultiLatentGP)
    models = (*aggregates, *effects, *colliders, *preferences, *tables)
    return {model.__name__: model for model in models}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # also the hooks, which the registry looks up in this module
