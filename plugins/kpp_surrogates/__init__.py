"""Model-agnostic explainers with an uncertainty of their own: KernelSHAP, Shapley sampling, LIME, CXPlain and others.

Classes are loaded on first use (PEP 562), so that finding this plugin costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import kpp

if TYPE_CHECKING:
    from kpp_surrogates.cxplain import CXPlain as CXPlain
    from kpp_surrogates.cxplain import FittedCXPlain as FittedCXPlain

_EXPORTS = {
    "CXPlain": "cxplain",
    "FittedCXPlain": "cxplain",
}


@kpp.hookimpl
def register_explainers() -> dict[str, type]:
    """Offer the explainers of this package."""
    from kpp_surrogates.cxplain import CXPlain

    return {"cxplain": CXPlain}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
