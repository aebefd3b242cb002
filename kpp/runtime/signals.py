"""How a command ends when a signal asks it to: SIGTERM, or Ctrl-C.

The handler raises SystemExit in the main thread, so unfinished results are deleted on the way out. This alone is not
enough. Python drops an exception that is raised inside a callback of its garbage collector, of which JAX has one, and
other code may catch it. So the handler also sets a flag, and `end_if_asked` raises again between two steps. And Python
calls no handler while one compiled step runs, which may take hours. So a thread that the signal itself wakes up ends
the process a few seconds later, whatever the main thread does.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

_GRACE = 5.0  # seconds in which a process may delete its unfinished results
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_asked = 0  # the signal that asked this process to end


@contextlib.contextmanager
def ends_by_signals() -> Iterator[None]:
    """Let SIGTERM and Ctrl-C end the process in the block: by SystemExit at first, and after 5 seconds in any case.

    The exit code is 128 plus the number of the signal, so 143 and 130. Signals that are ignored or that the caller
    handles stay so. In threads other than the main one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():  # only that one may set handlers
        yield
        return
    earlier = {number: signal.getsignal(number) for number in _SIGNALS}
    ours = [number for number in _SIGNALS if earlier[number] in (signal.SIG_DFL, signal.default_int_handler)]
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    threading.Thread(target=_watch, args=(receiver, ours), daemon=True).start()
    earlier_sender = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    for number in ours:
        signal.signal(number, _ask)
    try:
        yield
        end_if_asked()
    finally:
        signal.set_wakeup_fd(earlier_sender)
        for number in ours:  # Python restores the defaults as it ends, and a late signal would kill it: ignore it
            signal.signal(number, signal.SIG_IGN if _asked else earlier[number])
        sender.close()


def end_if_asked() -> None:
    """Raise SystemExit if a signal has asked this process to end; long work calls it between its steps."""
    if _asked:
        raise SystemExit(128 + _asked)


def raised_by_signal(error: BaseException | None) -> bool:
    """Return whether the handler of a signal raised an error, or the error that it stands for."""
    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    while error is not None:
        if any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _code_of(handler: Any) -> CodeType | None:
    """Return the code of a handler itself: functions of one decorator share the code of its wrapper."""
    return getattr(inspect.unwrap(handler), "__code__", None)


def _ask(number: int, frame: FrameType | None) -> None:
    global _asked
    if not _asked:  # a second signal changes nothing: the process ends already
        _asked = number
        end_if_asked()


def _watch(receiver: socket.socket, ours: list[signal.Signals]) -> None:
    """End the process some seconds after the first signal that this process ends by."""
    with receiver:
        while numbers := receiver.recv(64):
            for number in numbers:
                if number in ours:
                    time.sleep(_GRACE)
                    os._exit(128 + number)
