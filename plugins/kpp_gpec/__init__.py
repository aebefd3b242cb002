"""GPEC: the uncertainty of an explanation, from the model's decision boundary and the explainer's own error.

Classes are listed in `__init__.pyi` and loaded on first use, so that finding this plugin costs nothing.
"""

from __future__ import annotations

import kpp
from kpp.foundation.exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)


@kpp.hookimpl
def register_kernels() -> dict[str, type]:
    """Register the kernel of this package."""
    from kpp_gpec import WeightedExponentialGeodesic

    return {"WeightedExponentialGeodesic": WeightedExponentialGeodesic}


@kpp.hookimpl
def register_explainers() -> dict[str, type]:
    """Register the explainers of this package."""
    from kpp_gpec import GPEC, NaiveGP

    return {"gpec": GPEC, "naive-gp": NaiveGP}
