"""The fit of a run that is not complete: a hidden file beside the output folder, from which another run can go on.

The fit takes most of the time of a study. It is saved as soon as it is done, and deleted when the results are complete.
The file says what the fit follows from, so that it never stands for the fit of another study or of other data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from kpp.inference import Fit
from kpp.storage import netcdf
from kpp_study.study.errors import StudyError
from kpp_study.study.output import hidden_path, versions
from kpp_study.study.reading.data import StudyData
from kpp_study.study.sections.config import StudyConfig

_ATTRIBUTE = "kpp_kept"


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
        "the version of a package": _digest(versions()),
    }
    return KeptFit(hidden_path(output, "fit.nc"), digests)


def _contents(leaf: Any) -> bytes:
    """Return bytes that are the same for the same values in another process, texts included."""
    if isinstance(leaf, (pd.DataFrame, pd.Series)):
        leaf = pd.util.hash_pandas_object(leaf)
    return np.asarray(leaf).tobytes()


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
