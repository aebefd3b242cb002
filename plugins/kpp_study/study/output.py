"""The output folder: it is written under another name and renamed when all files are complete.

So the output folder is always complete. A run that is killed leaves at most a hidden folder, which the next run into
the same output deletes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kpp.foundation import distribution
from kpp.runtime.files import flush, remove_leftovers, replace_folder, temporary_path
from kpp_study.study.errors import StudyError

#: The files of a finished study.
FILES = ("posterior.nc", "explanation.nc", "fit.nc", "summary.csv", "report.html")
_IF_ASKED_FOR = ("certificate.csv", "counterfactual.csv", "effect.csv", "mediation.csv")


def check_output(output: Path, overwrite: bool) -> None:
    """Raise StudyError if the output folder cannot be created or holds files that must not be lost.

    An empty folder is treated as missing. With `overwrite` the results of an earlier study may be replaced; other
    files are never replaced.
    """
    parent = next(folder for folder in output.absolute().parents if os.path.lexists(folder))
    if not parent.is_dir():
        raise StudyError(f"--output {str(output)!r}: {str(parent)!r} is not a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise StudyError(f"--output {str(output)!r}: the folder {str(parent)!r} can't be written")
    if not os.path.lexists(output):
        return
    if output.is_symlink() or not output.is_dir():
        raise StudyError(f"--output {str(output)!r} exists and is not a folder")
    found = {entry.name for entry in output.iterdir()}
    others = sorted(found.difference(FILES, _IF_ASKED_FOR))
    if others:
        listed = ", ".join(map(repr, others[:3])) + (", ..." if len(others) > 3 else "")
        raise StudyError(f"--output {str(output)!r} holds other files ({listed}), which kpp does not replace")
    if found and not overwrite:
        raise StudyError(f"--output {str(output)!r} holds the results of a study; add --overwrite to replace them")


def hidden_path(output: Path, ending: str) -> Path:
    """Return the path of a hidden file or folder beside the output folder."""
    output = output.absolute()
    return output.with_name(f".{output.name}.{ending}")


@contextmanager
def output_folder(output: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a folder to write into, which becomes `output`, checked again, if the block succeeds, or is removed."""
    output = output.absolute()
    remove_leftovers(output)
    check_output(output, overwrite)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(
            f"--output {str(output)!r}: {str(output.parent)!r} can't be made ({error.strerror})"
        ) from error
    partial = temporary_path(output)
    partial.mkdir()
    try:
        yield partial
        for file in partial.iterdir():
            flush(file)
        check_output(output, overwrite)
        try:
            replace_folder(partial, output)
        except OSError as error:
            raise StudyError(f"--output {str(output)!r} can't be written ({error.strerror})") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def versions() -> dict[str, str]:
    """Return the versions of the packages that matter."""
    return distribution.versions("numpyro", "jax", "arviz", "numpy", "xarray")
