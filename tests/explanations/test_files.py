"""netCDF files: everything comes back, and a half-written file never takes the place of a whole one."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from kpp.explanations import Explanation

# Every kind of law, draws or none, and outputs or none occur by default; all combinations in the slow tests.
CASES = [(True, True, "across"), (False, True, "variance"), (True, False, "within"), (False, False, None)]
ALL = itertools.product([False, True], [False, True], [None, "variance", "within", "across"])


@pytest.mark.parametrize(
    ("draws", "outputs", "law"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in ALL if case not in CASES)],
)
def test_everything_comes_back(make, tmp_path, draws, outputs, law):
    explanation = make(draws, outputs, law)
    explanation.save(tmp_path / "explanation.nc")
    read = Explanation.load(str(tmp_path / "explanation.nc"))
    xr.testing.assert_equal(read.dataset, explanation.dataset)
    assert read.attrs == explanation.attrs
    assert read.feature_names == explanation.feature_names
    assert read.schema == explanation.schema
    assert [path.name for path in tmp_path.iterdir()] == ["explanation.nc"]


def test_attributes_that_netcdf_cannot_hold_come_back(points, tmp_path):
    attrs = {
        "none": None,
        "yes": True,
        "empty": "",
        "text": "weiß",
        "whole": 3,
        "huge": 2**70,
        "real": 0.1,
        "list": [1, "a", None],
        "nested": {"a": {"b": [False]}},
        "looks like JSON": "[1, 2]",
    }
    explanation = Explanation.create(points, 0.0, points.sum(axis=1), points, attrs=attrs, instance_names=list("abcde"))
    explanation.save(tmp_path / "e.nc")
    read = Explanation.load(tmp_path / "e.nc")
    assert {name: read.attrs[name] for name in attrs} == attrs
    assert all(type(read.attrs[name]) is type(value) for name, value in attrs.items())
    assert read.dataset.coords["instance"].values.tolist() == list("abcde")


@pytest.mark.parametrize("name", ["e.nc", "e.zarr"])
def test_names_of_any_alphabet_come_back(tmp_path, name):
    names, rows = ("größe", "\u05d0", "×2"), ("naïve", "北京")
    values = np.zeros((2, 3))
    explanation = Explanation.create(values, 0.0, [0.0, 0.0], values, feature_names=names, instance_names=rows)
    explanation.save(tmp_path / name)
    read = Explanation.load(tmp_path / name)
    assert read.feature_names == names
    assert read.dataset.coords["instance"].values.tolist() == list(rows)


def test_float32_comes_back(points, tmp_path):
    values = points.astype(np.float32)
    explanation = Explanation.create(values, np.float32(0), values.sum(axis=1), values)
    explanation.save(tmp_path / "e.nc")
    assert Explanation.load(tmp_path / "e.nc").values.dtype == np.float32


def test_a_failed_write_leaves_the_old_file_and_nothing_else(make, tmp_path, monkeypatch):
    path = tmp_path / "e.nc"
    make().save(path)
    before = path.read_bytes()

    def half(target, data):
        target.write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="disk full"):
        make(True).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_existing_file_is_replaced(make, tmp_path):
    make().save(tmp_path / "e.nc")
    make(True).save(tmp_path / "e.nc")
    assert Explanation.load(tmp_path / "e.nc").has_draws


def test_files_that_hold_something_else_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.nc"):
        Explanation.load(tmp_path / "missing.nc")
    (tmp_path / "text.nc").write_text(json.dumps({}))
    with pytest.raises(ValueError, match="not a netCDF file"):
        Explanation.load(tmp_path / "text.nc")
    xr.Dataset({"a": ("n", [1.0])}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(ValueError, match="holds no explanation"):
        Explanation.load(tmp_path / "other.nc")
    with pytest.raises(FileNotFoundError, match="folder that does not exist"):
        Explanation.create([[1.0]], 0.0, [1.0], [[1.0]]).save(tmp_path / "nowhere" / "e.nc")
