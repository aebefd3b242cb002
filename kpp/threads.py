"""A deadlock in JAX 0.10 and 0.11.0, and how it is kept away.

There the CPU's batched LAPACK calls (a Cholesky factorisation or a triangular solve under `jax.vmap`) hand their parts
to XLA's thread pool and wait for them in a thread of that pool. As many such calls at once as the pool has threads, two
on a machine with two cores, wait for each other for ever; later versions work through a batch in one thread. Where the
pool has more threads than any program has such calls at once, one is always left to do the work. XLA reads the size of
its pool from the environment when JAX first computes something, so `import kpp` comes before that.
"""

from __future__ import annotations

import importlib.metadata
import os
import re

__all__ = ["enlarge_thread_pool"]

_SIZE = 32
_MENDED = (0, 11, 2)


def enlarge_thread_pool() -> None:
    """Let XLA's thread pool on the CPU have 32 threads, where the deadlock exists and NPROC says nothing else."""
    version = tuple(int(part) for part in re.findall(r"\d+", importlib.metadata.version("jaxlib"))[:3])
    if version < _MENDED:
        os.environ.setdefault("NPROC", str(max(_SIZE, os.cpu_count() or 1)))
