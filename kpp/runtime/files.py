"""Files and folders that are replaced in one step, and what an ended process has left of such a step.

Results are written under a temporary name next to their place and renamed when they are complete. The temporary name
holds the computer, the process and a mark of this run of it, so the next run recognizes what a process that was killed
has left, and never touches what a running process writes.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import itertools
import os
import platform
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

_HOST = re.sub(r"\W", "-", platform.node()) or "localhost"
# Containers often give every run the same process number, so the number alone does not identify a run.
_MARK = secrets.token_hex(4)
_numbers = itertools.count()
_PARTIAL, _OLD = "partial", "old"

_AT_CURRENT_FOLDER, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
_SWAP = 2  # RENAME_SWAP of macOS


@contextlib.contextmanager
def replace_when_complete(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path for a file, which replaces `path` when the block ends.

    If the block raises an error, `path` is unchanged and the temporary file is deleted. If the process is killed, the
    next one that writes `path` deletes the temporary file. It is in the same folder, which must exist, so that the
    renaming is atomic.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"`path` {str(target)!r} lies in a folder that does not exist")
    remove_leftovers(target)
    partial = temporary_path(target)
    try:
        yield partial
        flush(partial)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def temporary_path(target: Path) -> Path:
    """Return a hidden path in the folder of `target` that no other process or thread uses."""
    return _hidden(target, _PARTIAL)


def remove_leftovers(target: Path) -> None:
    """Delete the temporary files and folders that ended processes of this computer have left for `target`.

    If a process ended after it had moved an old folder away and before the new one was in place, the old folder is
    moved back.
    """
    if not target.parent.is_dir():
        return
    for path in sorted(target.parent.glob(f".{glob.escape(target.name)}.*")):
        kind = _leftover(path, target)
        if kind is None:
            continue
        if kind == _OLD and not os.path.lexists(target):
            path.rename(target)
        elif path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def replace_folder(new: Path, target: Path) -> None:
    """Move a folder to `target`; a folder that is there is exchanged in one step and deleted.

    File systems that cannot exchange two folders need two steps. A process that is killed between them leaves the old
    folder under a hidden name, and `remove_leftovers` moves it back. If a folder cannot be renamed, `target` is
    unchanged.
    """
    if not target.exists():
        new.rename(target)
    elif _exchange(new, target):
        shutil.rmtree(new, ignore_errors=True)
    else:
        old = _hidden(target, _OLD)
        target.rename(old)
        try:
            new.rename(target)
        except BaseException:  # also Ctrl-C
            old.rename(target)
            raise
        shutil.rmtree(old, ignore_errors=True)


def expand_user(path: Path) -> Path:
    """Return a path in which a leading ``~`` is the home folder; a user who does not exist is left as written."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def flush(path: Path) -> None:
    """Wait until a file is on the disk: some file systems report only then that it is full."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hidden(target: Path, kind: str) -> Path:
    return target.with_name(f".{target.name}.{_HOST}.{os.getpid()}.{_MARK}-{next(_numbers)}.{kind}")


def _leftover(path: Path, target: Path) -> str | None:
    """Return whether a path is the new or the old part of `target`, left by an ended process; otherwise None."""
    pattern = rf"\.{re.escape(target.name)}\.{re.escape(_HOST)}\.(\d+)\.([0-9a-f]+)-\d+\.({_PARTIAL}|{_OLD})"
    match = re.fullmatch(pattern, path.name)
    if match is None:
        return None
    process, mark, kind = int(match[1]), match[2], match[3]
    runs = mark == _MARK if process == os.getpid() else _is_running(process)
    return None if runs else kind


def _is_running(process: int) -> bool:
    if sys.platform == "win32":  # there, signal 0 would end the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # a process of another user
        return True
    return True


def _exchange(first: Path, second: Path) -> bool:
    """Exchange the names of two folders in one step, and return whether the system could do it."""
    paths = os.fsencode(first), os.fsencode(second)
    try:
        library = ctypes.CDLL(None)
        if sys.platform == "darwin":
            return library.renamex_np(*paths, _SWAP) == 0
        return library.renameat2(_AT_CURRENT_FOLDER, paths[0], _AT_CURRENT_FOLDER, paths[1], _EXCHANGE) == 0
    except (AttributeError, OSError, TypeError):  # a C library without the function, or Windows
        return False
