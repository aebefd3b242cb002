"""Kernel probabilistic programming on NumPyro and JAX.

The names below are loaded on first use (PEP 562), so that `import kpp` costs little more than importing JAX; the
subpackages (`kpp.kernels`, `kpp.games`, ...) are reached as attributes in the same way. Importing kpp changes no global
JAX setting: turn on float64 yourself with `jax.config.update("jax_enable_x64", True)`. With JAX before 0.11.2 it gives
XLA a larger thread pool, without which some programs would never end (`kpp.threads`).
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

from kpp.threads import enlarge_thread_pool

if TYPE_CHECKING:  # what type checkers and editors see; a test compares it with `_EXPORTS`
    from kpp.api import explain as explain
    from kpp.bags import Bags as Bags
    from kpp.cache import enable_compile_cache as enable_compile_cache
    from kpp.conversion import as_rkhs_function as as_rkhs_function
    from kpp.explanations import AbstractExplainer as AbstractExplainer
    from kpp.explanations import Explanation as Explanation
    from kpp.functions import RKHSFunction as RKHSFunction
    from kpp.hookspecs import hookimpl as hookimpl
    from kpp.inference import MAP as MAP
    from kpp.inference import NUTS as NUTS
    from kpp.inference import SVI as SVI
    from kpp.inference import AbstractModel as AbstractModel
    from kpp.inference import Fit as Fit
    from kpp.inference import Laplace as Laplace
    from kpp.posteriors import GPPosterior as GPPosterior
    from kpp.priors import sample as sample

    __version__: str

_EXPORTS = {
    "AbstractExplainer": "kpp.explanations",
    "AbstractModel": "kpp.inference",
    "Bags": "kpp.bags",
    "Explanation": "kpp.explanations",
    "Fit": "kpp.inference",
    "GPPosterior": "kpp.posteriors",
    "Laplace": "kpp.inference",
    "MAP": "kpp.inference",
    "NUTS": "kpp.inference",
    "RKHSFunction": "kpp.functions",
    "SVI": "kpp.inference",
    "as_rkhs_function": "kpp.conversion",
    "enable_compile_cache": "kpp.cache",
    "explain": "kpp.api",
    "hookimpl": "kpp.hookspecs",
    "sample": "kpp.priors",
}

_SUBMODULES = frozenset(
    {
        "bags",
        "calibration",
        "calls",
        "causal",
        "embeddings",
        "explanations",
        "features",
        "functions",
        "games",
        "grids",
        "inference",
        "kernels",
        "linalg",
        "metrics",
        "networks",
        "optimization",
        "plots",
        "posteriors",
        "preferences",
        "priors",
        "registry",
        "report",
        "spec",
        "study",
        "tables",
        "testing",
        "threads",
        "typing",
        "validation",
    }
)

enlarge_thread_pool()


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        value = getattr(importlib.import_module(_EXPORTS[name]), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"kpp.{name}")
    elif name == "__version__":
        value = importlib.metadata.version("kpp")
    else:
        raise AttributeError(f"module 'kpp' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS, *_SUBMODULES, "__version__"})
