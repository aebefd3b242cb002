"""Converters of the models of other Gaussian-process libraries: GPyTorch, BoTorch, GPJax and tinygp.

Classes are listed in `__init__.pyi` and loaded on first use, so that finding this plugin costs nothing. No module
imports a library of these: a function does, when a model of the library has come.
"""

from __future__ import annotations

import lazy_loader

import kpp

__getattr__, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


@kpp.hookimpl
def register_converters() -> dict[str, type]:
    """Register the converters of this package."""
    from kpp_converters.from_botorch import BoTorchConverter
    from kpp_converters.from_gpjax import GPJaxConverter
    from kpp_converters.from_gpytorch import GPyTorchConverter
    from kpp_converters.from_tinygp import TinygpConverter

    return {
        "botorch": BoTorchConverter,
        "gpjax": GPJaxConverter,
        "gpytorch": GPyTorchConverter,
        "tinygp": TinygpConverter,
    }


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # also the hooks, which the registry looks up in this module
