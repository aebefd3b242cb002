"""Delayed tasks of Dask, completed one by one, by the client of this process or in its threads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["active_client", "complete_all"]


def active_client() -> Any:
    """Return the Dask client of this process, or None; imports nothing."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:  # there is none
        return None


def complete_all(tasks: Sequence[Any], notice: Callable[[int], object]) -> None:
    """Compute delayed tasks, and call `notice` with 1 after each.

    Raises:
        RuntimeError: If the scheduler is gone.
    """
    if not tasks:
        return
    client = active_client()
    if client is not None:
        _complete_on(client, tasks, notice)
        return
    from dask.base import compute
    from dask.callbacks import Callback

    keys = {task.key for task in tasks}

    def after(key: Any, result: Any, dsk: Any, state: Any, worker_id: Any) -> None:
        if key in keys:
            notice(1)

    with Callback(posttask=after):
        compute(*tasks)


def _complete_on(client: Any, tasks: Sequence[Any], notice: Callable[[int], object]) -> None:
    from concurrent.futures import CancelledError

    from distributed import as_completed
    from distributed.comm.core import CommClosedError

    futures = client.compute(list(tasks))
    try:
        for future in as_completed(futures):
            future.result()
            notice(1)
    except (CancelledError, CommClosedError) as error:
        raise RuntimeError(
            f"the scheduler is gone ({error}); what is finished stays, and the same call goes on from there"
        ) from error
    finally:
        if client.status == "running":
            client.cancel(futures)
