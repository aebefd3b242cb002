"""RKHS-SHAP: exact Shapley values and integrated gradients of kernel methods, and of their posteriors.

The explainers are listed in `__init__.pyi` and loaded on first use, so that finding this plugin costs nothing.
"""

from __future__ import annotations

import kpp
from kpp.foundation.exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)


@kpp.hookimpl
def register_explainers() -> dict[str, type]:
    """Register the explainers of this package."""
    from kpp_rkhs_shap import IntegratedGradients, RKHSShap

    return {"integrated-gradients": IntegratedGradients, "rkhs-shap": RKHSShap}
