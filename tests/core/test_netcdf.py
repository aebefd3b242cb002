"""netCDF files: complete or absent, and attributes that come back as they were."""

import numpy as np
import pytest
import xarray as xr

from kpp.runtime import files
from kpp.storage import netcdf

ATTRS = {
    "text": "a b",
    "empty": "",
    "number": 1.5,
    "infinite": float("inf"),
    "count": 3,
    "large": 2**80,
    "flag": True,
    "nothing": None,
    "names": ["x", "y"],
    "nested": {"a": [1, {"b": 2.0}], "c": None},
}


def dataset(**attrs):
    return xr.Dataset({"a": ("x", np.arange(3.0))}, attrs=attrs)


def test_attributes_come_back(tmp_path):
    netcdf.write(tmp_path / "a.nc", dataset(**ATTRS), {"inner": dataset(flag=False), "other": xr.Dataset()})
    root, groups = netcdf.read(tmp_path / "a.nc")
    assert root.attrs == ATTRS
    assert {name: type(value) for name, value in root.attrs.items()} == {n: type(v) for n, v in ATTRS.items()}
    assert list(groups) == ["inner", "other"]
    xr.testing.assert_identical(groups["inner"], dataset(flag=False))
    assert groups["other"].attrs == {}


def test_numbers_of_numpy_become_those_of_python():
    found = netcdf.decode_attrs(netcdf.encode_attrs({"a": np.float64(0.5), "b": np.int32(2), "c": np.bool_(True)}))
    assert found == {"a": 0.5, "b": 2, "c": True}
    assert [type(value) for value in found.values()] == [float, int, bool]


def test_numbers_and_text_can_be_read_without_decoding(tmp_path):
    netcdf.write(tmp_path / "a.nc", dataset(**ATTRS))
    attrs = xr.load_dataset(tmp_path / "a.nc", engine="h5netcdf").attrs
    assert (attrs["text"], attrs["number"], attrs["count"], attrs["flag"]) == ("a b", 1.5, 3, "true")


def test_attributes_without_a_list_of_json_are_left_unchanged():
    assert netcdf.decode_attrs({"a": "[1]", "b": 2.0}) == {"a": "[1]", "b": 2.0}


def test_what_json_cannot_hold_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(TypeError, match="not JSON serializable"):
        netcdf.write(tmp_path / "a.nc", dataset(value={1, 2}))
    assert not list(tmp_path.iterdir())


def test_an_interrupted_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.nc"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), files.replace_when_complete(path) as partial:
        partial.write_text("half of the n")
        raise KeyboardInterrupt
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.nc"]
    assert path.read_text() == "old"


def test_a_complete_file_replaces_the_old_one(tmp_path):
    netcdf.write(tmp_path / "a.nc", dataset(version=1), {"inner": dataset()})
    netcdf.write(tmp_path / "a.nc", dataset(version=2))
    root, groups = netcdf.read(tmp_path / "a.nc")
    assert (root.attrs, groups) == ({"version": 2}, {})
    assert len(list(tmp_path.iterdir())) == 1


def test_errors_name_the_path(tmp_path):
    with pytest.raises(FileNotFoundError, match="`path` .* lies in a folder that does not exist"):
        netcdf.write(tmp_path / "missing" / "a.nc", dataset())
    with pytest.raises(FileNotFoundError, match="`path` .* is not a file"):
        netcdf.read(tmp_path / "a.nc")
    (tmp_path / "a.nc").write_text("text")
    with pytest.raises(ValueError, match="`path` .* is not a netCDF file"):
        netcdf.read(tmp_path / "a.nc")
