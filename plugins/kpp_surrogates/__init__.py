"""Model-agnostic explainers with an uncertainty of their own: KernelSHAP, Shapley sampling, LIME, CXPlain and others.

Classes are loaded on first use (PEP 562), so that finding this plugin costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import kpp

if TYPE_CHECKING:
    from kpp_surrogates.bayes_shap import BayesSHAP as BayesSHAP
    from kpp_surrogates.cxplain import CXPlain as CXPlain
    from kpp_surrogates.cxplain import FittedCXPlain as FittedCXPlain
    from kpp_surrogates.lime import LIME as LIME
    from kpp_surrogates.lime import BayesLIME as BayesLIME
    from kpp_surrogates.shapley import KernelSHAP as KernelSHAP
    from kpp_surrogates.shapley import ShapleySampling as ShapleySampling

_EXPORTS = {
    "CXPlain": "cxplain",
    "FittedCXPlain": "cxplain",
    "BayesLIME": "lime",
    "BayesSHAP": "bayes_shap",
    "KernelSHAP": "shapley",
    "LIME": "lime",
    "ShapleySampling": "shapley",
}


@kpp.hookimpl
def register_explainers() -> dict[str, type]:
    """Offer the explainers of this package."""
    from kpp_surrogates.bayes_shap import BayesSHAP
    from kpp_surrogates.cxplain import CXPlain
    from kpp_surrogates.lime import LIME, BayesLIME
    from kpp_surrogates.shapley import KernelSHAP, ShapleySampling

    return {
        "bayes-lime": BayesLIME,
        "bayes-shap": BayesSHAP,
        "cxplain": CXPlain,
        "kernel-shap": KernelSHAP,
        "lime": LIME,
        "shapley-sampling": ShapleySampling,
    }


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
