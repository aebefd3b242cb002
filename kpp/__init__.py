"""Kernel probabilistic programming on NumPyro and JAX.

The public names and subpackages (`kpp.kernels`, `kpp.games`, ...) are listed in `__init__.pyi` and loaded on first use,
so that `import kpp` takes little more time than starting Python. Importing kpp changes no global JAX setting: turn
on float64 yourself with `jax.config.update("jax_enable_x64", True)`. With JAX before 0.11.2 it gives XLA a larger
thread pool, without which some programs would never end (`kpp.runtime.threads`). Processes that are forked from now on
know whether they can compute (`kpp.runtime.forks`).
"""

from __future__ import annotations

import lazy_loader

from kpp.runtime.forks import watch_forks as _watch_forks
from kpp.runtime.threads import enlarge_thread_pool as _enlarge_thread_pool

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

_enlarge_thread_pool()
_watch_forks()


def __getattr__(name: str) -> object:
    if name == "__version__":
        from kpp.foundation.distribution import versions

        return versions()["kpp"]
    return _load(name)
