"""How kpp uses the cores of a machine.

* Independent pieces of work (chains, blocks of draws or of points) run in as many Python threads as there are cores, by
  `call_in_threads`. XLA releases Python's lock while it computes, and on matrices of a few hundred rows two programs in
  two threads do nearly twice the work of one program with two threads.
  A thread that does such a piece of work makes no threads of its own.
* While kpp fits, predicts or explains, BLAS takes one thread (`one_blas_thread`): threads of several BLAS calls, or of
  BLAS and XLA, would wait for each other. With two threads of BLAS on two idle cores the gradient of a Gaussian process
  of 442 rows takes 1.3 times as long, of 1000 rows 1.5 times, and of 2000 rows as long; beside another busy process the
  slowest tenth of these gradients takes six times as long.
* XLA's own pool has one thread for each core. In JAX 0.10 and 0.11.0 it must be larger. There a batched LAPACK call on
  the CPU (a Cholesky factorization or a triangular solve under `jax.vmap`) gives its parts to XLA's thread pool, and
  waits for them in a thread of the same pool. If the number of simultaneous calls reaches the number of threads (two on
  a machine with two cores), all calls wait for each other forever. If the pool has more threads than any program has
  simultaneous calls, one thread is always free to do the work. XLA reads the size of its pool from the environment when
  JAX first computes something, so kpp must be imported before that.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_limits

_worker = threading.local()  # has the attribute `busy` in the threads of `call_in_threads`

Task = TypeVar("Task")
Result = TypeVar("Result")

_SIZE = 32  # more threads than a program has simultaneous batched calls
_MENDED = (0, 11, 2)


def enlarge_thread_pool() -> None:
    """Set XLA's thread pool on the CPU to 32 threads, if the deadlock exists and NPROC is not set."""
    version = tuple(int(part) for part in re.findall(r"\d+", importlib.metadata.version("jaxlib"))[:3])
    if version < _MENDED:
        os.environ.setdefault("NPROC", str(max(_SIZE, os.cpu_count() or 1)))


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _BlasLimit:
    """A limit of one thread for BLAS that several threads may ask for at once; the last one to leave lifts it.

    A thread of its own sets the limit and lifts it, because new versions of threadpoolctl do nothing if another thread
    lifts it.
    """

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        self._end, self._holder = threading.Event(), threading.Thread()

    def enter(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                begun, self._end = threading.Event(), threading.Event()
                self._holder = threading.Thread(target=_limit_blas, args=(begun, self._end), daemon=True)
                self._holder.start()
                begun.wait()

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._end.set()
                self._holder.join()


def _limit_blas(begun: threading.Event, end: threading.Event) -> None:
    try:
        with threadpool_limits(1, user_api="blas"):
            begun.set()
            end.wait()
    finally:
        begun.set()


_blas_limit = _BlasLimit()


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS take one thread in this process meanwhile; a context, or with parentheses a decorator."""
    _blas_limit.enter()
    try:
        yield
    finally:
        _blas_limit.leave()


@contextlib.contextmanager
def alone_in_thread() -> Iterator[None]:
    """Make no threads in this one meanwhile, and let BLAS take one: for the tasks of a pool that fills all cores."""
    was_busy = is_alone_in_thread()
    _worker.busy = True
    try:
        with one_blas_thread():
            yield
    finally:
        if not was_busy:
            del _worker.busy


def is_alone_in_thread() -> bool:
    """Return whether this thread does one of several pieces of work, and so makes no threads of its own."""
    return hasattr(_worker, "busy")


def call_in_threads(f: Callable[[Task], Result], tasks: Iterable[Task], threads: int) -> list[Result]:
    """Call a function for each task, in several threads, and return the results in the order of the tasks.

    JAX's settings of this thread, such as double precision, hold in the others, too. A function that is compiled at its
    first call should have been called before, or several threads compile it. With one thread, and in a thread of
    another such call, the calls are made here.
    """
    tasks = list(tasks)
    if threads == 1 or len(tasks) < 2 or is_alone_in_thread():
        return list(map(f, tasks))
    import jax  # `import kpp` must not load JAX

    x64, device = jax.config.jax_enable_x64, jax.config.jax_default_device

    def call(task: Task) -> Result:
        with jax.enable_x64(x64), jax.default_device(device):
            return f(task)

    def mark() -> None:
        _worker.busy = True

    with one_blas_thread(), ThreadPoolExecutor(min(threads, len(tasks)), initializer=mark) as pool:
        return list(pool.map(call, tasks))
