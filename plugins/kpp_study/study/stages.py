"""The stages of a run: which one runs, and how long each has taken."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from tqdm import tqdm

from kpp.foundation.wording import duration
from kpp.runtime.signals import end_if_asked


class Stages:
    """Lines on the error stream that say which stage of a run begins and how long it has taken.

    Attributes:
        seconds: The seconds of each finished stage.
    """

    def __init__(self, names: tuple[str, ...], *, show: bool = True) -> None:
        self.seconds: dict[str, float] = {}
        self._names = names
        self._show = show

    @contextlib.contextmanager
    def stage(self, name: str, *, announce: bool = True) -> Iterator[None]:
        """Time a block, and say when it begins, unless `announce` is False, and when it is done."""
        number = f"[{self._names.index(name) + 1}/{len(self._names)}] {name}"
        if announce:
            self.say(f"{number} ...")
        start = time.perf_counter()
        end_if_asked()
        yield
        end_if_asked()
        self.seconds[name] = time.perf_counter() - start
        self.say(f"{number}: {duration(self.seconds[name])}")

    def say(self, line: str) -> None:
        """Write one line, above a progress bar if there is one."""
        if self._show:
            tqdm.write(f"kpp: {line}", file=sys.stderr)
            sys.stderr.flush()
