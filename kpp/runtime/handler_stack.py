"""One stack of NumPyro's effect handlers for each thread.

NumPyro keeps the handlers that are active (``trace``, ``seed``, ``plate``, ...) in one list of the process. So two
threads that run models at the same time, as a fit does while it is compiled, see each other's handlers: errors such as
"all sites must have unique names", or sites of another thread's model. `separate_threads` puts a list for each thread
in its place. No thread waits for another one, and NumPyro's own code and users' models in threads get the same list.

The lowest modules of kpp that use NumPyro call it, so it holds before any part of kpp runs a model.
"""

from __future__ import annotations

import sys
import threading
from collections import UserList
from typing import Any

from numpyro import primitives

_NAME = "_PYRO_STACK"


class _StackPerThread(threading.local, UserList[Any]):  # each thread gets its own `data`, empty at first
    """A list whose entries are those of the thread that asks."""

    def __getitem__(self, place: Any) -> Any:
        return self.data[place]  # also a slice is a plain list


def separate_threads() -> None:
    """Let each thread have its own stack of handlers; a second call does nothing.

    What is active in this thread stays so.
    """
    _complete_packages()
    shared = getattr(primitives, _NAME, None)
    if type(shared) is not list:  # done already, or a NumPyro that needs no help
        return
    stack = _StackPerThread()
    stack.data = shared
    for module in list(sys.modules.values()):  # NumPyro's modules import the list by name
        if getattr(module, "__dict__", {}).get(_NAME) is shared:
            setattr(module, _NAME, stack)


def _complete_packages() -> None:
    """Give the packages of NumPyro the modules that they lack.

    ArviZ 1 imports NumPyro lazily. If `import numpyro.distributions` is what loads it then, Python runs this package
    twice, and the second one lacks the modules that the first one has loaded; NumPyro itself reads them there.
    """
    for name, module in list(sys.modules.items()):
        package, _, child = name.rpartition(".")
        if name.startswith("numpyro.") and child not in vars(sys.modules[package]):
            setattr(sys.modules[package], child, module)
