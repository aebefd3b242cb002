"""RKHS-SHAP: exact Shapley values of kernel methods, and of their posteriors.

The explainer is listed in `__init__.pyi` and loaded on first use, so that finding this plugin costs nothing.
"""

from __future__ import annotations

import kpp
from kpp.foundation.exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)


@kpp.hookimpl
def register_explainers() -> dict[str, type]:
    """Register the explainer of this package."""
    from kpp_rkhs_shap import RKHSShap

    return {"rkhs-shap": RKHSShap}
