"""Truncated, damaged, foreign, newer and edited files give a ValueError that names the file, in bounded time.

They run no code and show nothing of other files.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import h5py
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

import kpp
import kpp_models
from kpp.__main__ import main
from kpp.data.tables import Schema
from kpp.explanations import Explanation
from kpp.explanations.functions.named_functions import NamedFunction
from kpp.kernels import RBF
from kpp.storage import arviz_data, netcdf
from kpp.storage.serialization import from_spec
from kpp_gpec import fitted_output

SCHEMA = Schema(("a",), {})


def write_explanation(path: Path) -> None:
    Explanation.create(np.ones((2, 1)), 1.0, np.full(2, 2.0), np.ones((2, 1))).save(path)


def write_fit(path: Path) -> None:
    idata = arviz_data.from_groups({"posterior": xr.Dataset({"a": (("chain", "draw"), [[1.0]])})})
    model = kpp_models.KernelRidge(RBF(), 0.1)
    kpp.Fit(model, idata, {"x": np.ones(2)}, SCHEMA, {"a": jnp.array([[1.0]])}, kpp.MAP()).save(path)


def write_gpec(path: Path) -> None:
    arrays = {"x": np.ones((2, 1)), "location": np.zeros(1), "scale": np.ones(1)}
    described = {"name": "g", "feature_names": ["a"], "groups": None, "output_names": None, "output_positions": []}
    fitted_output.save(path, arrays, described | {"record": {}}, SCHEMA, ())


def write_function(path: Path) -> None:
    NamedFunction(kpp.RKHSFunction(RBF(), np.ones((2, 1)), np.ones(2), 0.5), SCHEMA).save(path)


KINDS = {
    "explanation": (write_explanation, Explanation.load),
    "fit": (write_fit, kpp.Fit.load),
    "function": (write_function, NamedFunction.load),
    "gpec": (write_gpec, fitted_output.load),
}
PLACES = {"explanation": "/values", "fit": "/kpp_data/x", "function": "/points", "gpec": "/x"}  # of one array
MARKS = {"fit": "kpp", "gpec": "kpp_gpec"}  # the attribute with the description


@pytest.fixture(params=KINDS)
def saved(request, tmp_path):
    write, load = KINDS[request.param]
    write(tmp_path / "saved.nc")
    load(tmp_path / "saved.nc")
    return request.param, tmp_path / "saved.nc", load


def without_digest(path: Path) -> bytes:
    """The file as other programs and earlier versions write it."""
    content = path.read_bytes()
    return content[: content.rindex(b"kpp-sha256:")]


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
            with pytest.raises(
                ValueError, match=r"saved\.nc.* lacks (the attribute|'kpp_function')|saved\.nc' holds no exp"
            ):
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


@pytest.mark.parametrize("name", ["values", "base_values", "predictions"])
def test_values_that_no_longer_add_up_are_refused(name, tmp_path):
    """The digest is that of the changed file, as if another program had written it."""
    write_explanation(tmp_path / "e.nc")
    root, _ = netcdf.read(tmp_path / "e.nc")
    root[name] = root[name] * 0.5
    netcdf.write(tmp_path / "e.nc", root)
    with pytest.raises(
        ValueError, match=r"e\.nc' was changed: .* predictions by up to (0\.5|1), and did so by up to 0 when"
    ):
        Explanation.load(tmp_path / "e.nc")


def rewrite(path: Path, mark: str, text: str, groups: dict[str, xr.Dataset] | None = None) -> None:
    root, held = netcdf.read(path)
    netcdf.write(path, root.assign_attrs({mark: text}), held if groups is None else groups)


@pytest.mark.slow_variants("fit", "gpec")
@pytest.mark.parametrize("kind", MARKS)
def test_an_edited_description_is_refused(kind, tmp_path):
    write, load = KINDS[kind]
    path, mark = tmp_path / "saved.nc", MARKS[kind]
    write(path)
    described = json.loads(netcdf.read(path)[0].attrs[mark])
    without = [{key: value for key, value in described.items() if key != left_out} for left_out in described]
    for edited in ["{", "[]", "3", "[" * 50_000, *map(json.dumps, without)]:
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
    for name in ["stranger.Model", "os.system", "kpp.runtime.files.remove_leftovers"]:
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


@pytest.fixture
def other(tmp_path):
    """A file of numbers that nobody should see, once as HDF5 and once as bytes."""
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["numbers"] = np.full((4, 2), 42.0)
    np.full((4, 2), 42.0).tofile(tmp_path / "other.bin")
    return tmp_path


def put_external(group, name, other):
    group.create_dataset(name, (4, 2), "f8", external=[(str(other / "other.bin"), 0, 64)])


def put_virtual(group, name, other):
    layout = h5py.VirtualLayout((4, 2), "f8")
    layout[:] = h5py.VirtualSource(str(other / "other.h5"), "numbers", (4, 2))
    group.create_virtual_dataset(name, layout)


def put_external_link(group, name, other):
    group[name] = h5py.ExternalLink(str(other / "other.h5"), "/numbers")


def put_soft_link(group, name, other):
    group[name] = h5py.SoftLink("/feature")


def put_cycle(group, name, other):
    group[name] = group


def put_reference(group, name, other):
    group[name] = np.array([group.ref], dtype=h5py.ref_dtype)


def put_type(group, name, other):
    group[name] = np.dtype("f8")


def put_record(group, name, other):
    group[name] = np.zeros(2, dtype=[("a", "f8"), ("b", "S3")])


def put_filter(group, name, other):
    group.create_dataset(name, (4, 2), "f8", chunks=(4, 2), compression=32001, allow_unknown_filter=True)


def put_text_in_chunks(group, name, other):
    group.create_dataset(name, data=["a", "b"], dtype=h5py.string_dtype(), chunks=(1,))


PUTS = {name.removeprefix("put_"): put for name, put in globals().items() if name.startswith("put_")}


def put(path: Path, how: str, place: str, other: Path) -> None:
    """Replace an array of a file; HDF5 cuts the digest off, so that only the structure can be checked."""
    group, name = place.rsplit("/", 1)
    with h5py.File(path, "r+") as file:
        del file[place]
        PUTS[how](file[group or "/"], name, other)


@pytest.mark.parametrize("how", ["external", "virtual", "external_link"])
def test_no_loader_reads_numbers_of_another_file(how, saved, other):
    kind, path, load = saved
    put(path, how, PLACES[kind], other)
    with pytest.raises(ValueError, match=r"saved\.nc' is not a netCDF file that kpp can read .* lies in the file"):
        load(path)


@pytest.mark.parametrize("how", PUTS)
def test_a_file_holds_plain_arrays_only(how, other):
    write_explanation(other / "evil.nc")
    put(other / "evil.nc", how, "/values", other)
    with pytest.raises(ValueError, match=r"evil\.nc' is not a netCDF file that kpp can read .*values"):
        Explanation.load(other / "evil.nc")


def test_a_link_in_place_of_a_group_is_refused(other):
    write_fit(other / "evil.nc")
    with h5py.File(other / "evil.nc", "r+") as file:
        file["posterior_predictive"] = h5py.ExternalLink(str(other / "other.h5"), "/")
    with pytest.raises(ValueError, match="'posterior_predictive' is a link"):
        kpp.Fit.load(other / "evil.nc")


def test_the_report_shows_nothing_of_another_file(other):
    write_explanation(other / "evil.nc")
    put(other / "evil.nc", "external", "/values", other)
    result = CliRunner().invoke(main, ["report", str(other / "evil.nc")])
    assert result.exit_code == 2 and "lie in other files" in result.output
    assert not (other / "evil.html").exists()


def damages(content: bytes, offsets):
    """Each offset once with 64 zero bytes and once with a flipped bit, without those that change nothing."""
    for offset in offsets:
        zeroed = content[:offset] + bytes(len(content[offset : offset + 64])) + content[offset + 64 :]
        flipped = content[:offset] + bytes([content[offset] ^ 1 << offset % 8]) + content[offset + 1 :]
        yield from (damaged for damaged in (zeroed, flipped) if damaged != content)


@pytest.mark.parametrize("step", [97, pytest.param(7, marks=pytest.mark.slow)])
def test_damage_at_any_place_is_noticed(step, saved):
    _, path, load = saved
    whole = path.read_bytes()
    offsets = {*range(0, len(whole), step), *range(len(whole) - 160, len(whole))}
    for damaged in damages(whole, sorted(offsets)):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"saved\.nc' is not a netCDF file that kpp can read \(it is damaged"):
            load(path)


def test_files_without_a_digest_are_read(saved):
    _, path, load = saved
    path.write_bytes(without_digest(path))
    load(path)


LOOP = """
import sys
from pathlib import Path
from kpp.explanations import Explanation

path = Path(sys.argv[1])
whole = path.read_bytes()
for offset in range(0, len(whole), 16):
    path.write_bytes(whole[:offset] + bytes(len(whole[offset : offset + 64])) + whole[offset + 64 :])
    try:
        Explanation.load(path)
    except ValueError:
        pass
print("all were answered")
"""


@pytest.mark.slow
def test_damage_without_a_digest_does_not_hang(tmp_path):
    path = tmp_path / "damaged.nc"
    write_explanation(path)
    path.write_bytes(without_digest(path))
    done = subprocess.run([sys.executable, "-c", LOOP, str(path)], capture_output=True, text=True, timeout=1800)
    assert "all were answered" in done.stdout, done.stderr[-2000:]


def test_a_heap_whose_entries_have_no_size_is_refused(tmp_path):
    path = tmp_path / "hangs.nc"
    write_explanation(path)
    content = bytearray(without_digest(path))
    heap = content.index(b"GCOL")  # HDF5 2.0 never returns from reading it
    content[heap + 16 : heap + 80] = bytes(64)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="the entries of a heap do not fit into it"):
        Explanation.load(path)


def test_a_small_file_with_gigabytes_of_zeros_is_refused(saved):
    _, path, load = saved
    with h5py.File(path, "r+") as file:
        file.create_dataset("bomb", (150_000_000,), "f8", chunks=(1_000_000,), compression="gzip")
    with pytest.raises(ValueError, match=r"becomes 12\d+ bytes in memory; kpp reads files that become up to 100 times"):
        load(path)


def test_one_long_text_that_is_named_many_times_is_refused(tmp_path):
    path = tmp_path / "bomb.nc"
    write_explanation(path)
    with h5py.File(path, "r+") as file:
        texts = file.create_dataset("texts", data=["x" * 10_000] + [""] * 9_999, dtype=h5py.string_dtype())
        start = texts.id.get_offset()
    content = bytearray(path.read_bytes())
    content[start : start + 160_000] = content[start : start + 16] * 10_000
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"becomes 100\d+ bytes in memory"):
        Explanation.load(path)


def test_a_file_larger_than_the_memory_is_refused(tmp_path):
    with open(tmp_path / "sparse.nc", "wb") as file:
        file.truncate(2**43)  # takes no room on the disk
    with pytest.raises(ValueError, match=r"sparse\.nc.*\(the file needs at least 8796.* GB"):
        Explanation.load(tmp_path / "sparse.nc")


def test_compressed_files_of_other_programs_are_read(tmp_path):
    write_explanation(tmp_path / "plain.nc")
    root, _ = netcdf.read(tmp_path / "plain.nc")
    root.attrs = netcdf.encode_attrs(root.attrs)
    packed = {"zlib": True, "shuffle": True, "fletcher32": True, "chunksizes": (2, 1)}
    root.to_netcdf(tmp_path / "packed.nc", engine="h5netcdf", encoding={"values": packed})
    assert Explanation.load(tmp_path / "packed.nc").values.to_numpy().tolist() == [[1.0], [1.0]]
