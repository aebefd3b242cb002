"""Truncated, damaged, foreign, newer and edited files give a ValueError that names the file, and run no code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import kpp
import kpp_models
from kpp import _arviz, netcdf
from kpp.explanations import Explanation
from kpp.inference import storage
from kpp.kernels import RBF
from kpp.serialization import from_spec
from kpp.tables import Schema
from kpp_gpec import gpec_files

SCHEMA = Schema(("a",), {})


def write_explanation(path: Path) -> None:
    Explanation.create(np.ones((2, 1)), 0.0, np.ones(2), np.ones((2, 1))).save(path)


def write_fit(path: Path) -> None:
    idata = _arviz.from_groups({"posterior": xr.Dataset({"a": (("chain", "draw"), [[1.0]])})})
    parts = {"data": {"x": np.ones(2)}, "schema": SCHEMA, "sites": ["a"], "inference": {"name": "MAP"}, "state": {}}
    storage.write_parts(path, model=kpp_models.KernelRidge(RBF(), 0.1), idata=idata, **parts)


def write_gpec(path: Path) -> None:
    arrays = {"x": np.ones((2, 1)), "location": np.zeros(1), "scale": np.ones(1)}
    described = {"name": "g", "feature_names": ["a"], "groups": None, "output_names": None, "output_positions": []}
    gpec_files.save(path, arrays, described | {"record": {}}, SCHEMA, ())


KINDS = {
    "explanation": (write_explanation, Explanation.load),
    "fit": (write_fit, kpp.Fit.load),
    "gpec": (write_gpec, gpec_files.load),
}
MARKS = {"fit": "kpp", "gpec": "kpp_gpec"}  # the attribute with the description


@pytest.fixture(params=KINDS)
def saved(request, tmp_path):
    write, load = KINDS[request.param]
    write(tmp_path / "saved.nc")
    load(tmp_path / "saved.nc")
    return request.param, tmp_path / "saved.nc", load


def test_a_truncated_file_is_refused(saved):
    _, path, load = saved
    whole = path.read_bytes()
    for length in [0, 10, 1000, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"`path` .*saved\.nc' is not a netCDF file"):
            load(path)


def test_a_damaged_file_is_refused(saved):
    _, path, load = saved
    damaged = bytearray(path.read_bytes())
    for position in range(7, len(damaged), 150):
        damaged[position] ^= 0xFF
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"`path` .*saved\.nc' is not a netCDF file"):
        load(path)


def test_a_file_of_another_kind_is_refused(saved):
    kind, path, load = saved
    for other, (write, _) in KINDS.items():
        if other != kind:
            write(path)
            with pytest.raises(ValueError, match=r"saved\.nc.*lacks the attribute|saved\.nc' holds no explanation"):
                load(path)


@pytest.mark.parametrize("name", ["values", "base_values", "predictions", "data"])
def test_an_explanation_without_a_part_is_refused(name, tmp_path):
    write_explanation(tmp_path / "e.nc")
    root, _ = netcdf.read(tmp_path / "e.nc")
    netcdf.write(tmp_path / "e.nc", root.drop_vars(name))
    with pytest.raises(ValueError, match=rf"e\.nc' is not an explanation, or was edited: it lacks .*'{name}'"):
        Explanation.load(tmp_path / "e.nc")


@pytest.mark.parametrize("version", [99, "z", [1]])
def test_an_explanation_of_a_newer_format_is_refused(version, tmp_path):
    write_explanation(tmp_path / "e.nc")
    root, _ = netcdf.read(tmp_path / "e.nc")
    netcdf.write(tmp_path / "e.nc", root.assign_attrs(kpp_explanation_format=version))
    with pytest.raises(ValueError, match="this version of kpp reads up to 1"):
        Explanation.load(tmp_path / "e.nc")


def rewrite(path: Path, mark: str, text: str, groups: dict[str, xr.Dataset] | None = None) -> None:
    root, held = netcdf.read(path)
    netcdf.write(path, root.assign_attrs({mark: text}), held if groups is None else groups)


@pytest.mark.parametrize("kind", MARKS)
def test_an_edited_description_is_refused(kind, tmp_path):
    write, load = KINDS[kind]
    path, mark = tmp_path / "saved.nc", MARKS[kind]
    write(path)
    described = json.loads(netcdf.read(path)[0].attrs[mark])
    without = [{key: value for key, value in described.items() if key != left_out} for left_out in described]
    for edited in ["{", "[]", "3", *map(json.dumps, without)]:
        rewrite(path, mark, edited)
        with pytest.raises(ValueError, match=r"`path` .*saved\.nc' is not .*, or was edited"):
            load(path)
    rewrite(path, mark, json.dumps(described | {"format": 7}))
    with pytest.raises(ValueError, match="of format 7; this version"):
        load(path)
    if kind == "fit":
        rewrite(path, mark, json.dumps(described), {})
        with pytest.raises(ValueError, match="it lacks 'kpp_data'"):
            load(path)


@pytest.mark.parametrize("key", ["model", "inference"])
def test_a_fit_that_names_another_class_runs_nothing(key, tmp_path, monkeypatch):
    (tmp_path / "stranger.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "saved.nc"
    write_fit(path)
    described = json.loads(netcdf.read(path)[0].attrs["kpp"])
    for name in ["stranger.Model", "os.system", "kpp.files.remove_leftovers"]:
        rewrite(path, "kpp", json.dumps(described | {key: {"name": name, "path": "/"}}))
        with pytest.raises(ValueError, match=name):
            kpp.Fit.load(path)
    assert "stranger" not in sys.modules


BAD_SPECS = {
    "a function of a module": {"name": "os.system"},
    "a builtin": {"name": "__import__"},
    "an unknown kind": {"name": "RBF", "kind": "os"},
    "another attribute of the registry": {"name": "RBF", "kind": "refresh"},
    "a dunder field": {"name": "RBF", "__class__": "os"},
    "code for a number": {"name": "RBF", "lengthscale": "__import__('os')"},
    "a function that is no distribution": {"name": "RBF", "lengthscale": {"prior": "kl_divergence", "p": 1, "q": 2}},
    "a module that is no distribution": {"name": "RBF", "lengthscale": {"prior": "transforms"}},
    "the base class of distributions": {"name": "RBF", "lengthscale": {"prior": "Distribution"}},
    "a hidden name": {"name": "RBF", "lengthscale": {"prior": "__builtins__"}},
}


@pytest.mark.parametrize("spec", BAD_SPECS.values(), ids=BAD_SPECS)
def test_a_spec_names_registered_classes_and_distributions_only(spec):
    with pytest.raises(ValueError, match=r"no plugin|must be one of|no field|must be a real|has no distribution"):
        from_spec(spec, "kernels")
