"""Kernels and count tables of molecules, strings and graphs, and a sparse prior of many lengthscales.

Names are listed in `__init__.pyi` and loaded on first use, so that finding this plugin costs nothing.
"""

from __future__ import annotations

import kpp
from kpp.foundation.exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)


@kpp.hookimpl
def register_kernels() -> dict[str, type]:
    """Register the kernels of this package, and let studies and saved fits name its prior."""
    from kpp.storage.serialization import prior_class
    from kpp_structures import Precomputed, SAASLengthscales, Tanimoto

    prior_class(SAASLengthscales)
    return {"precomputed": Precomputed, "tanimoto": Tanimoto}
