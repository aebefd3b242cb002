"""Pref-SHAP: Shapley values of preferences between two items, for the items' features and for those of the context.

Classes are loaded on first use (PEP 562), so that finding this plugin costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import kpp

if TYPE_CHECKING:
    from kpp_pref_shap.concatenation import as_concatenated as as_concatenated
    from kpp_pref_shap.concatenation import as_utility as as_utility
    from kpp_pref_shap.context_game import PreferentialContext as PreferentialContext
    from kpp_pref_shap.explainer import PrefShap as PrefShap
    from kpp_pref_shap.item_game import PreferentialItems as PreferentialItems

_EXPORTS = {
    "PrefShap": "explainer",
    "PreferentialContext": "context_game",
    "PreferentialItems": "item_game",
    "as_concatenated": "concatenation",
    "as_utility": "concatenation",
}


@kpp.hookimpl
def register_value_functions() -> dict[str, type]:
    """Offer the value functions of this package."""
    from kpp_pref_shap.context_game import PreferentialContext
    from kpp_pref_shap.item_game import PreferentialItems

    return {"preferential-items": PreferentialItems, "preferential-context": PreferentialContext}


@kpp.hookimpl
def register_explainers() -> dict[str, type]:
    """Offer the explainer of this package."""
    from kpp_pref_shap.explainer import PrefShap

    return {"pref-shap": PrefShap}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
