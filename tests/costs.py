"""`--costs` prints what the tests of each folder cost: seconds, CPU seconds, and programs that XLA compiled.

Most of the time of the suite goes into compilation, which no single slow test shows. `.ci/run` prints this table, so
that a change that compiles many more programs is seen. A program that the compile cache already holds counts as
requested, not as compiled. A fixture counts for the first test that uses it.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import jax
import pytest

_OPTION = "--costs"
_PROPERTY = "costs"
_EVENTS = {
    "/jax/compilation_cache/compile_requests_use_cache": "requested",
    "/jax/compilation_cache/cache_misses": "compiled",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, action="store_true", help="print seconds and compiled programs of each folder of tests")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(_OPTION):
        config.pluginmanager.register(_Meter())
        if not hasattr(config, "workerinput"):  # the only process, or the one that collects from pytest-xdist's
            config.pluginmanager.register(_Table())


class _Meter:
    """Adds what each phase of a test cost to its report."""

    def __init__(self) -> None:
        self._programs: Counter[str] = Counter()
        self._last = self._now()
        jax.monitoring.register_event_listener(self._count)

    def _count(self, event: str, **details: Any) -> None:
        if event in _EVENTS:
            self._programs[_EVENTS[event]] += 1

    def _now(self) -> Counter[str]:
        return Counter(seconds=time.perf_counter(), cpu=time.process_time(), **self._programs)  # type: ignore[arg-type]

    def pytest_runtest_logstart(self) -> None:
        self._last = self._now()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report = yield
        now = self._now()
        report.user_properties.append((_PROPERTY, dict(now - self._last)))
        self._last = now
        return report


class _Table:
    """Adds up what the reports say, by folder, and prints it."""

    def __init__(self) -> None:
        self._costs: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        folder = "/".join(PurePosixPath(report.nodeid.partition("::")[0]).parts[:-1][:3])
        cost = Counter(dict(report.user_properties).get(_PROPERTY, {}), tests=report.when == "call")
        for name in (folder, "all"):
            self._costs[name].update(cost)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("costs")
        row = "{:<48} {:>6} {:>9} {:>9} {:>10} {:>10}".format
        terminalreporter.write_line(row("", "tests", "seconds", "CPU", "requested", "compiled"))
        for name, cost in sorted(self._costs.items(), key=lambda item: -item[1]["seconds"]):
            numbers = (f"{cost['seconds']:.1f}", f"{cost['cpu']:.1f}", cost["requested"], cost["compiled"])
            terminalreporter.write_line(row(name, cost["tests"], *numbers))
