"""The output folder: it is written under another name and renamed when all files are complete.

So the output folder is always complete. A run that is killed leaves at most a hidden folder, which the next run into
the same output deletes; and the fit, which takes most of the time of a study, in a hidden file, from which another run
can go on. It is saved as soon as it is done, and deleted when the results are complete. The file says what the fit
follows from, so that it never stands for the fit of another study or of other data.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from kpp.inference import Fit
from kpp.runtime.files import flush, remove_leftovers, replace_folder, temporary_path
from kpp.storage import netcdf
from kpp_study.report import sentences
from kpp_study.study.errors import StudyError
from kpp_study.study.reading.data import StudyData
from kpp_study.study.sections.config import StudyConfig

#: The files of a finished study.
FILES = ("posterior.nc", "explanation.nc", "fit.nc", "summary.csv", "report.html")
_IF_ASKED_FOR = ("certificate.csv", "counterfactual.csv", "effect.csv", "mediation.csv")
_ATTRIBUTE = "kpp_kept"


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


@dataclass(frozen=True)
class KeptFit:
    """The place of a kept fit, and what the fit of this run follows from."""

    path: Path
    digests: Mapping[str, str]  # of everything that decides the numbers of the fit, by its name for the user

    def is_there(self) -> bool:
        """Return whether there is a kept fit that this run can go on from."""
        try:
            return self._changes() == []
        except (OSError, ValueError):
            return False

    def save(self, fit: Fit, seconds: float) -> None:
        """Save a fit that took some seconds; the file appears only when it is complete."""
        kept = json.dumps({"digests": dict(self.digests), "seconds": seconds})
        fit.with_attrs({**fit.attrs, _ATTRIBUTE: kept}).save(self.path)

    def load(self) -> tuple[Fit, float]:
        """Return the kept fit of this study and these data, and the seconds that it took, or raise StudyError."""
        if not self.path.is_file():
            raise StudyError("--resume: no finished fit was kept for this output; leave --resume out to begin anew")
        try:
            changed = self._changes()
            if not changed:
                fit = Fit.load(self.path)
        except (OSError, ValueError) as error:
            raise StudyError(
                f"--resume: the kept fit {str(self.path)!r} can't be read ({error}); leave --resume out to fit again"
            ) from error
        if changed:
            raise StudyError(
                f"--resume: {' and '.join(changed)} {'has' if len(changed) == 1 else 'have'} changed since the kept "
                "fit was made; undo the change, or leave --resume out to fit again"
            )
        attrs = fit.attrs
        seconds = json.loads(attrs.pop(_ATTRIBUTE))["seconds"]
        return fit.with_attrs(attrs), seconds

    def remove(self) -> None:
        """Delete the kept fit of this study; the fit of another study, which runs into the same output, stays."""
        if self.is_there():
            self.path.unlink(missing_ok=True)

    def _changes(self) -> list[str]:
        """Return the names of everything that differs between the kept fit and this run."""
        with netcdf.complete(self.path, "a kept fit"):
            digests = json.loads(netcdf.read_attrs(self.path)[_ATTRIBUTE])["digests"]
            return [name for name, digest in self.digests.items() if digests.get(name) != digest]


def kept_fit(output: Path, config: StudyConfig, data: StudyData) -> KeptFit:
    """Return the place of the kept fit for an output folder, with the digests of a study and its data.

    [explainer], [certificate] and [report] do not change the fit, so they may be changed before the run goes on.
    """
    table = hashlib.sha256(json.dumps(data.units.schema.to_json()).encode())
    for leaf in jax.tree.leaves((data.x, data.y, data.training, dict(data.options))):
        table.update(_contents(leaf))
    digests = {
        "study.seed": _digest(config.seed),
        "[data]": _digest([config.data.target, config.data.standardize, config.decided]),
        f"the table {data.path.name!r}": table.hexdigest(),
        "[model]": _digest(config.sections["model"]),
        "[inference]": _digest(config.sections["inference"]),
        "the version of a package": _digest(sentences.versions()),
    }
    output = output.absolute()
    return KeptFit(output.with_name(f".{output.name}.fit.nc"), digests)


def _contents(leaf: Any) -> bytes:
    """Return bytes that are the same for the same values in another process, texts included."""
    if isinstance(leaf, (pd.DataFrame, pd.Series)):
        leaf = pd.util.hash_pandas_object(leaf)
    return np.asarray(leaf).tobytes()


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
