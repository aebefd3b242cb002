"""Pref-SHAP: Shapley values of preferences between two items, for features of the items and of the context.

Classes are listed in `__init__.pyi` and loaded on first use, so that finding this plugin costs nothing.
"""

from __future__ import annotations

import kpp
from kpp.foundation.exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)


@kpp.hookimpl
def register_value_functions() -> dict[str, type]:
    """Register the value functions of this package."""
    from kpp_pref_shap import PreferentialContext, PreferentialItems

    return {"preferential-items": PreferentialItems, "preferential-context": PreferentialContext}


@kpp.hookimpl
def register_explainers() -> dict[str, type]:
    """Register the explainer of this package."""
    from kpp_pref_shap import PrefShap

    return {"pref-shap": PrefShap}
