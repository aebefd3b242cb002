"""A signal that asks the process to end while a plugin loads is not taken for a fault of the plugin."""

from __future__ import annotations

import signal
import sys

import pytest

from kpp import registry
from kpp.runtime import signals

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

INTERRUPTED = {
    "a plugin that the signal interrupts": "import signal\nsignal.raise_signal(signal.SIGUSR1)",
    "a plugin that makes another error of it": """
        import signal
        try:
            signal.raise_signal(signal.SIGUSR1)
        except SystemExit:
            raise ImportError("interrupted")
    """,
}


@pytest.mark.parametrize("source", INTERRUPTED.values(), ids=INTERRUPTED)
def test_a_signal_while_a_plugin_loads_is_not_the_fault_of_the_plugin(source, install, record):
    class Server:
        def stop(self, number, frame):
            sys.exit(7)

    install("interrupted", "good", source)
    earlier = signal.signal(signal.SIGUSR1, Server().stop)
    try:
        with pytest.raises((SystemExit, ImportError), match="7|interrupted"):
            registry.kernels()
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        assert record("good", "interrupted").error is None  # the next look-up loads it
    finally:
        signal.signal(signal.SIGUSR1, earlier)


def test_a_signal_that_a_plugin_swallows_ends_the_command(install, monkeypatch):
    install("greedy", "good", "from kpp.runtime import signals\nsignals._asked = 15")
    monkeypatch.setattr(signals, "_asked", 0)
    with pytest.raises(SystemExit, match="143"):
        registry.kernels()
