"""Model-agnostic explainers with their own uncertainty: KernelSHAP, Shapley sampling, LIME, CXPlain and others.

Classes are listed in `__init__.pyi` and loaded on first use, so that finding this plugin costs nothing.
"""

from __future__ import annotations

import lazy_loader

import kpp

__getattr__, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


@kpp.hookimpl
def register_explainers() -> dict[str, type]:
    """Register the explainers of this package."""
    from kpp_surrogates.bayes_shap import BayesSHAP
    from kpp_surrogates.cxplain import CXPlain
    from kpp_surrogates.lime import LIME, BayesLIME
    from kpp_surrogates.shap_explainer import ShapExplainer
    from kpp_surrogates.shapley import KernelSHAP, ShapleySampling

    return {
        "bayes-lime": BayesLIME,
        "bayes-shap": BayesSHAP,
        "cxplain": CXPlain,
        "kernel-shap": KernelSHAP,
        "lime": LIME,
        "shap": ShapExplainer,
        "shapley-sampling": ShapleySampling,
    }


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # also the hooks, which the registry looks up in this module
