"""Model-agnostic explainers with their own uncertainty: KernelSHAP, Shapley sampling, LIME, CXPlain and others.

Classes are listed in `__init__.pyi` and loaded on first use, so that finding this plugin costs nothing.
"""

from __future__ import annotations

import kpp
from kpp.foundation.exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)


@kpp.hookimpl
def register_explainers() -> dict[str, type]:
    """Register the explainers of this package."""
    from kpp_surrogates import LIME, BayesLIME, BayesSHAP, CXPlain, KernelSHAP, ShapExplainer, ShapleySampling

    return {
        "bayes-lime": BayesLIME,
        "bayes-shap": BayesSHAP,
        "cxplain": CXPlain,
        "kernel-shap": KernelSHAP,
        "lime": LIME,
        "shap": ShapExplainer,
        "shapley-sampling": ShapleySampling,
    }
