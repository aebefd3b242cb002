"""The plugin: its hooks return the classes by name."""

from __future__ import annotations

import kpp
from kpp_example.converter import ScipyConverter
from kpp_example.explainer import Occlusion
from kpp_example.inference import BlackJAXNUTS
from kpp_example.kernel import Cosine

__all__ = ["BlackJAXNUTS", "Cosine", "Occlusion", "ScipyConverter"]


@kpp.hookimpl
def register_kernels() -> dict[str, type]:
    return {"Cosine": Cosine}


@kpp.hookimpl
def register_explainers() -> dict[str, type]:
    return {"occlusion": Occlusion}


@kpp.hookimpl
def register_converters() -> dict[str, type]:
    return {"scipy": ScipyConverter}  # the top-level module of the library


@kpp.hookimpl
def register_inferences() -> dict[str, type]:
    return {"BlackJAXNUTS": BlackJAXNUTS}
