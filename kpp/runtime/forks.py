"""Refusal to compute in a process that was forked after JAX had started.

JAX computes in threads, and a forked process has none of the threads of its parent, so its computations may wait
forever. JAX warns about this when a process is forked. In such a process the main functions of kpp raise an error. On
Linux, the threads of JAX's backends are recognized by their names. Elsewhere nothing is refused.
"""

from __future__ import annotations

import os
from pathlib import Path

_THREADS = Path("/proc/self/task")
_NAMES = "tf_XLA"  # what the names of the threads of JAX's backends begin with

_has_started = False  # whether JAX had started when a process was forked
_is_forked = False  # whether this process was forked then


def watch_forks() -> None:
    """Remember in each forked process whether JAX had started before."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_look_for_threads, after_in_child=_remember)


def refuse_forked_process() -> None:
    """Raise an error in a process that was forked after JAX had started."""
    if _is_forked:
        raise RuntimeError(
            "this process was forked after JAX had started, so its computations may wait forever; start processes with "
            "multiprocessing.get_context('spawn') or 'forkserver' (for example "
            "ProcessPoolExecutor(mp_context=get_context('spawn'))), with joblib, or use threads"
        )


def _look_for_threads() -> None:
    global _has_started
    _has_started = any(_read(file).startswith(_NAMES) for file in _THREADS.glob("*/comm"))  # none but on Linux


def _remember() -> None:
    global _is_forked
    _is_forked = _is_forked or _has_started


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # the thread has just ended
        return ""
