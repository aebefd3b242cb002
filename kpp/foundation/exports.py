"""Packages whose public names are listed in a stub, loaded on first use, and check their arguments."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import lazy_loader


def lazy_exports(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return what a package assigns to ``__getattr__``, ``__dir__`` and ``__all__`` to load its names on first use.

    The arguments are its ``__name__`` and ``__file__``; the stub ``__init__.pyi`` beside it lists the names. The
    functions and methods that it hands out check the kinds of their arguments; see `kpp.foundation.arguments`.
    """
    load, _, exported = lazy_loader.attach_stub(package, file)
    namespace = vars(sys.modules[package])

    def load_guarded(name: str) -> Any:
        value = load(name)
        from kpp.foundation.arguments import guard  # not before: it imports JAX, and finding a plugin costs nothing

        namespace[name] = guard(value, package)
        return namespace[name]

    # The registry looks up the hooks, which are not in the stub, in this list.
    return load_guarded, lambda: sorted({*namespace, *exported}), exported
