"""Independent tasks with numbers, such as replications, on Dask or in threads; and functions that travel to workers."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import jax

from kpp.lazy.schedulers import complete_all, is_dask_chosen
from kpp.runtime.batching import announce, progress_bar
from kpp.runtime.threads import alone_in_thread, call_in_threads, is_alone_in_thread


class TravelingFunction:
    """A function that travels to other processes with the precision of this one.

    JAX reads arrays of double precision as single precision wherever double precision is off, as in a new process.
    So the function travels as bytes, and is read and called in the precision of the process that made it. A worker
    reads it once and keeps what it has compiled for the next calls. A call makes no threads of its own.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function: Callable[..., Any] | None = function
        self._bytes: bytes | None = None
        self._x64 = bool(jax.config.jax_enable_x64)

    def pack(self, what: str) -> TravelingFunction:
        """Turn the function into bytes now, and return this object, or raise TypeError if that is not possible."""
        try:
            self.__getstate__()
        except Exception as error:  # pickle raises errors of many types
            raise TypeError(f"{what} cannot be sent to the workers of Dask: {error}") from error
        return self

    def __getstate__(self) -> dict[str, Any]:
        import cloudpickle

        if self._bytes is None:
            self._bytes = cloudpickle.dumps(self._function)
        return {**self.__dict__, "_function": None}

    def __call__(self, *arguments: Any) -> Any:
        """Call the function in its precision."""
        with jax.enable_x64(self._x64), alone_in_thread():
            if self._function is None:
                import cloudpickle

                assert self._bytes is not None
                self._function = cloudpickle.loads(self._bytes)
            return self._function(*arguments)


Result = TypeVar("Result")


def map_numbers(
    f: Callable[[int], Result],
    num_tasks: int,
    *,
    name: str,
    label: str,
    threads: int,
    progress: bool,
    compiles: bool = False,
) -> list[Result]:
    """Call a function with 0, 1, ..., and return the results in order.

    If the process has a Dask client, or ``dask.config`` has a scheduler, the calls are tasks of Dask. Then the function
    travels once to each worker, with the precision of this process. Otherwise the calls are made in threads, and inside
    of such a call one after the other. The function must not depend on the order of the calls. Errors state the `name`
    of a task, such as "replication", and its number. If the first call compiles a program that all calls share, threads
    start after it. Raises RuntimeError if the scheduler is gone, and TypeError if the function cannot travel.
    """
    call = functools.partial(_call, f, name, num_tasks)
    with progress_bar(num_tasks, label, unit=name, show=progress) as bar:
        if is_dask_chosen() and not is_alone_in_thread():
            return _on_dask(call, num_tasks, name, bar.update)

        def call_here(number: int) -> Result:
            result = call(number)
            bar.update()
            return result

        if not compiles:
            return call_in_threads(call_here, range(num_tasks), threads)
        with announce(bar, "with compilation"):
            first = call_here(0)
        return [first, *call_in_threads(call_here, range(1, num_tasks), threads)]


def _call(f: Callable[[int], Result], name: str, num_tasks: int, number: int) -> Result:
    """Call a function; an error gets a note with the task."""
    try:
        return f(number)
    except Exception as error:
        error.add_note(f"in {name} {number} of {num_tasks}, counted from 0")
        raise


def _on_dask(call: Callable[[int], Result], num_tasks: int, name: str, notice: Callable[[int], object]) -> list[Result]:
    import cloudpickle
    from dask.delayed import delayed

    # The results are bytes, so that they are read in the thread and the precision of the user.
    function = TravelingFunction(lambda number: cloudpickle.dumps(call(number))).pack(f"the function of each {name}")
    shared = delayed(function, traverse=False)
    run, token = delayed(TravelingFunction.__call__), uuid.uuid4().hex  # the keys tell which task a worker died of
    tasks = [run(shared, number, dask_key_name=f"{name}-{number}-{token}") for number in range(num_tasks)]
    packed = complete_all(tasks, notice, "nothing is kept of the results; call again with another scheduler or without")
    return [cloudpickle.loads(result) for result in packed]
