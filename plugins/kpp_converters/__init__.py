"""Converters of the models of scikit-learn, GPyTorch, BoTorch, GPJax and tinygp; an explainer like those of shap.

Names are listed in `__init__.pyi` and loaded on first use, so that finding this plugin costs nothing. No module
imports a library of these: a function does, when a model of the library has come.
"""

from __future__ import annotations

import kpp
from kpp.foundation.exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)


@kpp.hookimpl
def register_converters() -> dict[str, type]:
    """Register the converters of this package."""
    from kpp_converters.from_botorch import BoTorchConverter
    from kpp_converters.from_gpjax import GPJaxConverter
    from kpp_converters.from_gpytorch import GPyTorchConverter
    from kpp_converters.from_tinygp import TinygpConverter
    from kpp_converters.scikit_learn.converter import SklearnConverter

    return {
        "botorch": BoTorchConverter,
        "gpjax": GPJaxConverter,
        "gpytorch": GPyTorchConverter,
        "sklearn": SklearnConverter,
        "tinygp": TinygpConverter,
    }
