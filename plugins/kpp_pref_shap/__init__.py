"""Pref-SHAP: Shapley values of preferences between two items, for features of the items and of the context.

Classes are listed in `__init__.pyi` and loaded on first use, so that finding this plugin costs nothing.
"""

from __future__ import annotations

import lazy_loader

import kpp

__getattr__, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


@kpp.hookimpl
def register_value_functions() -> dict[str, type]:
    """Register the value functions of this package."""
    from kpp_pref_shap.context_game import PreferentialContext
    from kpp_pref_shap.item_game import PreferentialItems

    return {"preferential-items": PreferentialItems, "preferential-context": PreferentialContext}


@kpp.hookimpl
def register_explainers() -> dict[str, type]:
    """Register the explainer of this package."""
    from kpp_pref_shap.explainer import PrefShap

    return {"pref-shap": PrefShap}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # also the hooks, which the registry looks up in this module
