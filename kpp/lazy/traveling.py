"""Functions that travel to other processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from kpp.runtime.threads import alone_in_thread


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
            return self._open()(*arguments)

    def _open(self) -> Callable[..., Any]:
        if self._function is None:
            import cloudpickle

            assert self._bytes is not None
            self._function = cloudpickle.loads(self._bytes)
        return self._function
