"""Release of compiled programs before a process has more of them than the system allows.

Each new shape compiles new programs, and JAX keeps them for the life of the process. A program takes several mapped
regions of memory. Linux allows a process some 65,000 of them, and beyond this limit LLVM ends the process. A service
that explains tables of hundreds of shapes would come to that limit, so kpp releases all programs at half of it. What is
needed again is compiled again, or read from the persistent cache (`kpp.enable_compile_cache`).
"""

from __future__ import annotations

import gc
import logging
import threading
from pathlib import Path

import jax

_LOGGER = logging.getLogger("kpp")
_MAPS = Path("/proc/self/maps")
_LIMIT = Path("/proc/sys/vm/max_map_count")
_BETWEEN = 100  # programs that are compiled between two counts of the regions; each takes some 25
_EVENT = "/jax/core/compile/backend_compile_duration"

_lock = threading.Lock()
_compiled = 0


def release_programs() -> bool:
    """Release all compiled programs if the process has used half of the mapped regions that it may have.

    The regions are counted after every 100 compilations. On systems other than Linux nothing is released.
    """
    global _compiled
    with _lock:
        if _compiled < _BETWEEN:
            return False
        _compiled = 0
        try:
            used, limit = _MAPS.read_bytes().count(b"\n"), int(_LIMIT.read_text())
        except (OSError, ValueError):
            return False
        if used <= limit // 2:
            return False
        _LOGGER.info("releasing the compiled programs, which take %d of %d regions of memory", used, limit)
        jax.clear_caches()
        gc.collect()
        return True


def _count(event: str, duration_secs: float, **kwargs: str | int) -> None:
    global _compiled
    if event == _EVENT:
        _compiled += 1


jax.monitoring.register_event_duration_secs_listener(_count)
