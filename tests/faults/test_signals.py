"""A command that a signal asks to end does so: with its exit code, in any case, and with unfinished results deleted."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from kpp.runtime import signals
from kpp.runtime.batching import progress_bar
from kpp_study.study.runner import Stages

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

CODES = {"SIGTERM": 143, "SIGINT": 130}

# The step of a command, run in a block that ends by signals; "cleaned" shows that the way out was taken.
CHILD = """
import ctypes, gc, os, signal, sys
from kpp.runtime import signals

def wait():
    print("waiting", flush=True)
    signal.pause()

def lost():  # an exception that a callback of the garbage collector raises goes nowhere
    gc.callbacks.append(lambda phase, info: phase == "start" and wait())
    gc.collect()
    gc.callbacks.clear()
    print("lost", flush=True)

def lost_at_a_step():
    lost()
    signals.end_if_asked()

def lost_by_a_handler_of_others():
    try:
        wait()
    except SystemExit:
        print("lost", flush=True)

def long():  # no handler of Python runs in it
    mutex = ctypes.create_string_buffer(64)
    lock = ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex)
    print("waiting", flush=True)
    lock(mutex)

def long_compiled():
    import jax
    endless = jax.jit(lambda x: jax.lax.while_loop(lambda v: v >= 0.0, lambda v: v + 1.0, x))
    print("waiting", flush=True)
    endless(0.0).block_until_ready()

def lost_before_a_long_step():
    lost()
    long()

signal.signal(signal.SIGINT, signal.default_int_handler)  # processes in the background of a shell ignore it
signals._GRACE = float(sys.argv[2])
with signals.ends_by_signals():
    try:
        globals()[sys.argv[1]]()
    finally:
        print("cleaned", flush=True)
"""


def end(step: str, *names: str, grace: float) -> tuple[int, list[str]]:
    """Send signals to a child that waits; return its exit code and its lines."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, step, str(grace)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "waiting\n", process.communicate()[1]
        for name in names:
            process.send_signal(getattr(signal, name))
        lines = process.communicate(timeout=60)[0].split()
    finally:
        process.kill()  # nothing happens to one that has ended
    return process.returncode, lines


@pytest.mark.parametrize("name", CODES)
def test_a_signal_ends_a_command_with_its_own_exit_code_and_leaves_time_to_clean_up(name):
    assert end("wait", name, grace=600.0) == (CODES[name], ["cleaned"])


@pytest.mark.parametrize("step", ["lost_at_a_step", "lost", "lost_by_a_handler_of_others"])
def test_a_signal_whose_exception_is_lost_ends_the_command_at_the_next_step(step):
    code, lines = end(step, "SIGTERM", grace=600.0)
    assert (code, lines[0], lines[-1]) == (143, "lost", "cleaned")


@pytest.mark.skipif(sys.platform != "linux", reason="a mutex of zeros")
@pytest.mark.parametrize(
    ("step", "name"),
    [
        ("long", "SIGTERM"),
        pytest.param("long", "SIGINT", marks=pytest.mark.slow),
        pytest.param("lost_before_a_long_step", "SIGTERM", marks=pytest.mark.slow),
        pytest.param("long_compiled", "SIGTERM", marks=pytest.mark.slow),
        pytest.param("long_compiled", "SIGINT", marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_a_command_in_the_midst_of_one_long_step(step, name):
    assert end(step, name, grace=0.2)[0] == CODES[name]


def test_more_signals_do_not_disturb_the_end():
    """Signals come until the process is gone, so also after the block and while Python itself ends."""
    process = subprocess.Popen([sys.executable, "-c", CHILD, "wait", "600"], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "waiting\n"
    while process.poll() is None:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        time.sleep(1e-4)
    assert process.stdout.read() == "cleaned\n"
    assert process.returncode in CODES.values()


def test_handlers_of_the_caller_and_ignored_signals_stay(monkeypatch):
    caller = lambda number, frame: None  # noqa: E731
    earlier = [signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGTERM, caller)]
    try:
        with signals.ends_by_signals():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is caller
    finally:
        signal.signal(signal.SIGINT, earlier[0])
        signal.signal(signal.SIGTERM, earlier[1])


def test_a_block_that_no_signal_ends_leaves_the_handlers_as_they_were():
    earlier = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with signals.ends_by_signals():
        assert signal.getsignal(signal.SIGTERM) not in earlier
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == earlier


def test_stages_and_steps_of_bars_are_places_where_a_command_ends(monkeypatch):
    with progress_bar(2, "fit", show=False) as bar:
        bar.update()
        monkeypatch.setattr(signals, "_asked", signal.SIGTERM)
        with pytest.raises(SystemExit, match="143"):
            bar.update()
    with pytest.raises(SystemExit, match="143"), Stages(("fit",), show=False).stage("fit"):
        pytest.fail("the stage must not begin")
