"""Refusal of computations and files that cannot fit into memory, before anything is allocated."""

from __future__ import annotations

import os
from pathlib import Path

import jax

_SMALL = 2**26  # this number of entries fits into the memory of any computer
_SYSTEM = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")  # the limits of a container
_RATIO = 100  # random numbers hardly shrink in a file, and columns that are constant shrink to a few percent
_FREE = 64 * 2**20  # a file that becomes no larger in memory is read in any case


def available_memory() -> int | None:
    """Return the bytes that JAX's default device can still allocate, or None if the system does not say.

    On the CPU, a container's limit counts too.
    """
    statistics = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in statistics:
        return int(statistics["bytes_limit"] - statistics.get("bytes_in_use", 0))
    known = [number for number in (_of_system(), _of_group()) if number is not None]
    return min(known, default=None)


def check_memory(num_bytes: int, what: str, advice: str) -> None:
    """Raise ValueError if the memory is known and less than a computation needs; `what` it is begins the message."""
    available = available_memory()
    if available is not None and num_bytes > available:
        raise ValueError(
            f"{what} needs at least {num_bytes / 1e9:.1f} GB ({num_bytes} bytes), and {available / 1e9:.1f} GB are "
            f"available; {advice}"
        )


def check_expansion(num_bytes: int, size: int) -> None:
    """Raise ValueError if a content is above 64 MiB and 100 times its file, or above the available memory."""
    if num_bytes > max(_FREE, _RATIO * size):
        raise ValueError(
            f"it has {size} bytes and becomes {num_bytes} bytes in memory; kpp reads files that become up to {_RATIO} "
            f"times as large, or up to {_FREE} bytes"
        )
    check_memory(num_bytes, "its content", "use a machine with more memory")


def check_count(value: int, name: str, numbers: int) -> None:
    """Raise ValueError if the things that a caller asks for, each of some `numbers`, do not fit into memory."""
    what = f"`{name}` = {value}, with {numbers} numbers for each,"
    _check_numbers(value * numbers, what, f"choose a smaller `{name}`")


def check_matrices(number: int, size: int, what: str, advice: str = "use fewer rows") -> None:
    """Raise ValueError if some matrices of n * n numbers do not fit into memory, and this is known."""
    listed = "a matrix" if number == 1 else f"{number} matrices"
    _check_numbers(number * size**2, f"{what} with {listed} of n * n numbers, n = {size},", advice)


def _check_numbers(numbers: int, what: str, advice: str) -> None:
    if numbers > _SMALL:
        check_memory(numbers * jax.dtypes.canonicalize_dtype(float).itemsize, what, advice)


def _of_system() -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in _SYSTEM.read_text().splitlines())
        return 1024 * int(lines["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        pass
    try:  # macOS and others: the whole memory
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _of_group() -> int | None:
    try:
        limit, used = (int((_GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        parts = dict(line.split() for line in (_GROUP / "memory.stat").read_text().splitlines())
        return limit - used + int(parts.get("inactive_file", 0))  # cached files are given up on demand
    except (OSError, ValueError):  # no container, or no limit: "max"
        return None
