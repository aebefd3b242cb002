"""Delayed tasks of Dask, completed one by one, by the client of this process or by the scheduler that is set."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kpp.runtime.threads import num_cores


def active_client() -> Any:
    """Return the Dask client of this process, or None; imports nothing."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:  # there is none
        return None


def is_dask_chosen() -> bool:
    """Return whether this process has a Dask client, or ``dask.config`` has a scheduler; imports nothing."""
    dask = sys.modules.get("dask")
    return active_client() is not None or (dask is not None and dask.config.get("scheduler", None) is not None)


def complete_all(tasks: Sequence[Any], notice: Callable[[int], object], if_gone: str) -> list[Any]:
    """Compute delayed tasks, call `notice` with 1 after each, and return their results in order."""
    if not tasks:
        return []
    client = active_client()
    if client is not None:
        return _complete_on(client, tasks, notice, if_gone)
    from dask.base import compute
    from dask.callbacks import Callback

    keys = {task.key for task in tasks}

    def after(key: Any, result: Any, dsk: Any, state: Any, worker_id: Any) -> None:
        if key in keys:
            notice(1)

    with Callback(posttask=after), waiting_for_threads():
        return list(compute(*tasks))


@contextlib.contextmanager
def waiting_for_threads() -> Iterator[None]:
    """Let Dask compute in threads that have ended when the block ends.

    After an error in one task, the other tasks that run in Dask's own threads go on unseen, and can write files after
    the caller has cleaned up. A client, and a scheduler or a pool of threads that the user has set, are
    left alone.
    """
    import dask

    threads = dask.config.get("scheduler", None) in (None, "threads", "threading")
    if not threads or dask.config.get("pool", None) is not None:
        yield
        return
    size = dask.config.get("num_workers", None) or num_cores()
    with ThreadPoolExecutor(size) as pool, dask.config.set(pool=pool):
        yield


def _complete_on(client: Any, tasks: Sequence[Any], notice: Callable[[int], object], if_gone: str) -> list[Any]:
    from concurrent.futures import CancelledError

    from distributed import as_completed
    from distributed.comm.core import CommClosedError

    futures = client.compute(list(tasks))
    results = {}
    try:
        for future in as_completed(futures):
            results[future.key] = future.result()
            notice(1)
    except (CancelledError, CommClosedError) as error:
        reason = " ".join(str(error).split())
        raise RuntimeError(f"the scheduler is gone ({reason}); {if_gone}") from error
    finally:
        if client.status == "running":
            client.cancel(futures)
    return [results[future.key] for future in futures]
