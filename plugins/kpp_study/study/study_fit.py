"""The fit of a finished study, for new rows: it takes and gives the units of the study's table.

The study's model was fitted to standardized numbers. The file fit.nc of the output folder holds this fit and, as an
attribute, the conversion of units, so that nobody has to convert by hand.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kpp.inference import Fit
from kpp.inference.toolkit import read_parts
from kpp_study.study.reading.data import StudyData
from kpp_study.study.reading.units import StudyUnits

#: The name of the file in the output folder of a study.
FIT_FILE = "fit.nc"
_ATTRIBUTE = "kpp_study_fit"
_NOTE = (
    "this fit of a study is in standardized units; kpp_study.study.load_fit(path) and the commands `kpp predict` and "
    "`kpp explain` take and give the units of the table"
)


@dataclasses.dataclass(frozen=True)
class StudyFit:
    """The fit of a study with the conversion of units.

    Args:
        fit: The fit, in the model's units.
        units: The conversion; None if the file is a fit that belongs to no study, which has units of its own.
        max_draws: The largest number of draws that the study has explained.
    """

    fit: Fit
    units: StudyUnits | None
    max_draws: int | None = None

    @property
    def thinned(self) -> Fit:
        """The fit with the draws that the study has explained."""
        return self.fit if self.max_draws is None else self.fit.thin(self.max_draws)[0]

    def predict(self, table: pd.DataFrame, *, unseen: str = "error") -> pd.DataFrame:
        """Predict the target for new rows, averaged over all draws.

        Args:
            table: The rows, with (at least) the columns of the features.
            unseen: As for `kpp.Fit.predict`.

        Returns:
            A table with a row for each row, and the columns ``prediction`` (of two classes, the probability of the
            second), ``prediction_sd``, the standard deviation of the mean, and ``observation_sd``, that of a new
            observation, as far as the model provides them.

        Raises:
            ValueError: If `table` does not fit the training data.
        """
        points = table if self.units is None else self.units.points(table, unseen)
        found = self.fit.predict(points, unseen=unseen)
        if "probability" in found:
            return pd.DataFrame({"prediction": found["probability"].mean(("chain", "draw")).values}, table.index)
        center, scale = (0.0, 1.0)
        if self.units is not None:
            center, scale = self.units.target_center, self.units.target_scale
        each = found["response_mean"] if "response_mean" in found else found["mean"]
        columns = {"prediction": center + scale * each.mean(("chain", "draw")).values}
        if "response_mean" not in found and "latent_variance" in found:
            variance = (each.var(("chain", "draw")) + found["latent_variance"].mean(("chain", "draw"))).values
            columns["prediction_sd"] = scale * np.sqrt(variance)
            if "noise_variance" in found:
                noise = found["noise_variance"].mean(("chain", "draw")).values
                columns["observation_sd"] = scale * np.sqrt(variance + noise)
        return pd.DataFrame(columns, table.index)


def save_fit(path: Path, fit: Fit, data: StudyData, max_draws: int) -> None:
    """Write the fit of a study, with the conversion of units; the model must be one that `kpp.Fit.save` saves."""
    facts = {"pairs": data.match is not None, "max_draws": max_draws, "shown": data.units.target}
    attrs = {**fit.attrs, _ATTRIBUTE: json.dumps({**data.facts, **facts})}
    if not data.units.is_identity:
        attrs["kpp_note"] = _NOTE
    fit.with_attrs(attrs).save(path)


def load_fit(path: str | os.PathLike[str]) -> StudyFit:
    """Read the fit of a finished study.

    Args:
        path: The output folder of the study, or a file of a fit: fit.nc of such a folder, or of `kpp.Fit.save`.

    Returns:
        The fit, with the units of the study.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is not a saved fit, or the fit of a study of pairs, whose rows are no rows of features.
    """
    file = Path(path) / FIT_FILE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {str(file)!r}")
    fit = Fit(**read_parts(file))
    if _ATTRIBUTE not in fit.attrs:
        return StudyFit(fit, None)
    facts: dict[str, Any] = json.loads(fit.attrs[_ATTRIBUTE])
    if facts["pairs"]:
        raise ValueError(
            f"{str(file)!r} is the fit of matches between items, which predicts no single rows; "
            "kpp.Fit.load(path).predict takes pairs of items in Python"
        )
    return StudyFit(fit, StudyUnits.from_json(facts), facts["max_draws"])
