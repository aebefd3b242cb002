"""RKHS-SHAP: exact Shapley values of kernel methods, and of their posteriors.

The explainer is loaded on first use (PEP 562), so that finding this plugin costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kpp

if TYPE_CHECKING:
    from kpp_rkhs_shap.explainer import RKHSShap as RKHSShap


@kpp.hookimpl
def register_explainers() -> dict[str, type]:
    """Register the explainer of this package."""
    from kpp_rkhs_shap.explainer import RKHSShap

    return {"rkhs-shap": RKHSShap}


def __getattr__(name: str) -> Any:
    if name != "RKHSShap":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kpp_rkhs_shap.explainer import RKHSShap

    return RKHSShap


def __dir__() -> list[str]:
    return sorted({*globals(), "RKHSShap"})
