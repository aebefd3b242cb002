"""GPEC: the uncertainty of an explanation, from the model's decision boundary and the explainer's own error.

Classes are listed in `__init__.pyi` and loaded on first use, so that finding this plugin costs nothing.
"""

from __future__ import annotations

import lazy_loader

import kpp

__getattr__, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


@kpp.hookimpl
def register_kernels() -> dict[str, type]:
    """Register the kernel of this package."""
    from kpp_gpec.process.geodesic_kernel import WeightedExponentialGeodesic

    return {"WeightedExponentialGeodesic": WeightedExponentialGeodesic}


@kpp.hookimpl
def register_explainers() -> dict[str, type]:
    """Register the explainers of this package."""
    from kpp_gpec.gpec import GPEC
    from kpp_gpec.naive import NaiveGP

    return {"gpec": GPEC, "naive-gp": NaiveGP}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # also the hooks, which the registry looks up in this module
