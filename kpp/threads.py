"""A workaround for a deadlock in JAX 0.10 and 0.11.0.

In these versions a batched LAPACK call on the CPU (a Cholesky factorization or a triangular solve under `jax.vmap`)
gives its parts to XLA's thread pool, and waits for them in a thread of the same pool. If the number of simultaneous
calls reaches the number of threads (two on a machine with two cores), all calls wait for each other forever. Later
versions process a batch in one thread. If the pool has more threads than any program has simultaneous calls, one thread
is always free to do the work. XLA reads the size of its pool from the environment when JAX first computes something, so
kpp must be imported before that.
"""

from __future__ import annotations

import importlib.metadata
import os
import re

__all__ = ["enlarge_thread_pool"]

_SIZE = 32  # more threads than a program has simultaneous batched calls
_MENDED = (0, 11, 2)


def enlarge_thread_pool() -> None:
    """Set XLA's thread pool on the CPU to 32 threads, if the deadlock exists and NPROC is not set."""
    version = tuple(int(part) for part in re.findall(r"\d+", importlib.metadata.version("jaxlib"))[:3])
    if version < _MENDED:
        os.environ.setdefault("NPROC", str(max(_SIZE, os.cpu_count() or 1)))
