"""MAPIE takes GPRegressor unchanged: the lines of the page on calibration run, where it is installed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).resolve().parents[4] / "docs" / "how_to" / "calibration.md"


def test_the_lines_of_the_page_give_intervals_that_hold_the_calibration_rows():
    """By definition, at least 90 % of the rows that calibrate the intervals lie in them."""
    pytest.importorskip("mapie")
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(40, 2))
    y = np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=40)
    (code,) = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    names = {"x": x, "y": y, "x_new": x[20:]}
    exec(code, names)
    (lower, upper), observed = names["interval"][:, :, 0].T, y[20:]
    assert names["mean"].shape == (20,)
    assert ((lower <= observed) & (observed <= upper)).mean() >= 0.9
