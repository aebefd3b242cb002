"""Zarr stores of strangers run no code and show nothing of other files; damage is noticed; foreign files stay."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path

import dask.array as da
import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
from click.testing import CliRunner

import kpp
from kpp.__main__ import main
from kpp.explanations import Explanation
from kpp.explanations.toolkit import marked
from kpp.kernels import RBF
from kpp.lazy.blocks import read_blocks
from kpp.storage import netcdf
from kpp_study import explain_to_store
from kpp_study.jobs.store import JobStore

VALUES = np.random.default_rng(0).normal(size=(4, 2))


def explanation() -> Explanation:
    return Explanation.create(VALUES, 0.5, 0.5 + VALUES.sum(axis=1), VALUES, feature_names=["a", "b"])


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("stores") / "e.zarr"
    explanation().save(path)
    return path


@pytest.fixture
def store(original, tmp_path):
    shutil.copytree(original, tmp_path / "e.zarr")
    return tmp_path / "e.zarr"


def edit(store: Path, array: str, **parts: object) -> None:
    """Change the description of an array in both places."""
    description = json.loads((store / array / ".zarray").read_text()) | parts
    (store / array / ".zarray").write_text(json.dumps(description))
    whole = json.loads((store / ".zmetadata").read_text())
    whole["metadata"][f"{array}/.zarray"] = description
    (store / ".zmetadata").write_text(json.dumps(whole))


class Payload:
    def __reduce__(self):
        return os.mkdir, ("the payload ran",)


def put_payload(store: Path) -> None:
    """Names of features that numcodecs would unpickle."""
    edit(store, "feature", dtype="|O", compressor=None, filters=[{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}])
    (store / "feature" / "0").write_bytes(pickle.dumps(Payload()))


def function() -> kpp.RKHSFunction:
    return kpp.RKHSFunction(RBF(), VALUES, np.ones(4))


ROADS = {
    "load": Explanation.load,
    "load and compute": lambda path: Explanation.load(path).dataset.compute(),
    "resume": lambda path: explain_to_store(function(), da.from_array(VALUES), path, show_progress=False),
    "blocks that are done": lambda path: JobStore(path).done(),
    "layout": lambda path: JobStore(path).layout(),
    "write": lambda path: JobStore(path).write({"values": VALUES}, 0, 0),
    "report": lambda path: CliRunner().invoke(main, ["report", str(path), "--debug"], catch_exceptions=False),
}


@pytest.mark.parametrize("road", ROADS)
def test_a_pickle_in_a_store_is_not_run(road, store, monkeypatch):
    monkeypatch.chdir(store.parent)
    put_payload(store)
    with pytest.raises(ValueError, match=r"e\.zarr'.*"):
        ROADS[road](store)
    assert not Path("the payload ran").exists()


BAD_PARTS = {
    "pickle alone": {"filters": [{"id": "pickle", "protocol": 5}]},
    "pickle as the compressor": {"compressor": {"id": "pickle", "protocol": 5}},
    "pickle after text": {"filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}], "dtype": "|O"},
    "text twice": {"filters": [{"id": "vlen-utf8"}, {"id": "vlen-utf8"}], "dtype": "|O"},
    "objects without a codec": {"filters": None, "dtype": "|O"},
    "objects of JSON": {"filters": [{"id": "json2"}], "dtype": "|O"},
    "a codec that kpp does not know": {"filters": [{"id": "n5_wrapper"}]},
    "another compressor": {"compressor": {"id": "lzma"}},
    "a record": {"dtype": [["a", "<f8"], ["b", "<f8"]]},
    "a type of no data": {"dtype": "|V8"},
    "Fortran's order": {"order": "F"},
    "blocks in folders": {"dimension_separator": "/"},
    "a negative shape": {"shape": [-1]},
    "blocks of another rank": {"chunks": [1, 1]},
    "shapes of no numbers": {"shape": "2", "chunks": "2"},
    "billions of blocks": {"shape": [10**12], "chunks": [1]},
    "blocks of no size": {"chunks": [0]},
    "a fill value that is a list": {"fill_value": [1]},
    "the third format": {"zarr_format": 3},
    "an unknown key": {"storage_transformers": []},
}


@pytest.mark.parametrize("parts", BAD_PARTS.values(), ids=BAD_PARTS)
def test_an_array_that_kpp_does_not_write_is_refused(parts, store):
    edit(store, "feature", **parts)
    with pytest.raises(ValueError, match=r"e\.zarr' is not a Zarr store that kpp can read"):
        Explanation.load(store)


@pytest.mark.parametrize("name", [".zmetadata", "feature/.zarray"])
def test_two_descriptions_that_differ_are_refused(name, store):
    """Zarr reads the one or the other, depending on its version and the way of opening."""
    evil = json.loads((store / name).read_text())
    (evil["metadata"]["feature/.zarray"] if name == ".zmetadata" else evil)["filters"] = None
    (store / name).write_text(json.dumps(evil))
    with pytest.raises(ValueError, match="described in two ways"):
        Explanation.load(store)


@pytest.mark.parametrize("name", ["zarr.json", "feature/zarr.json", "feature/.zgroup"])
def test_files_of_other_formats_are_refused(name, store):
    (store / name).write_text("{}")
    with pytest.raises(ValueError, match="must be one group of Zarr's format 2"):
        Explanation.load(store)


@pytest.mark.parametrize("name", [".zattrs", ".zmetadata", "values", "values/.zarray", "values/0.0"])
def test_links_out_of_the_store_are_not_followed(name, store):
    (store / name).rename(store.parent / "elsewhere")
    (store / name).symlink_to(store.parent / "elsewhere")
    with pytest.raises(ValueError, match="link"):
        Explanation.load(store).dataset.compute()


def test_deeply_nested_attributes_are_refused(store):
    (store / ".zattrs").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="is not a Zarr store that kpp can read"):
        Explanation.load(store)


def check_damage(store: Path, step: int) -> None:
    """A flipped bit and 64 zeros at each place of each file: an error, or nothing has changed."""
    known = Explanation.load(store).dataset.compute()
    for file in sorted(path for path in store.rglob("*") if path.is_file()):
        whole = file.read_bytes()
        for offset in range(0, len(whole), step):
            flipped = whole[:offset] + bytes([whole[offset] ^ 1 << offset % 8]) + whole[offset + 1 :]
            zeroed = whole[:offset] + bytes(len(whole[offset : offset + 64])) + whole[offset + 64 :]
            for damaged in (flipped, zeroed, whole[:offset]):
                file.write_bytes(damaged)
                try:
                    xr.testing.assert_identical(Explanation.load(store).dataset.compute(), known)
                except ValueError as error:
                    assert str(store) in str(error)
        file.write_bytes(whole)


@pytest.mark.slow_variants("41")
@pytest.mark.nightly_variants("5")
@pytest.mark.parametrize("step", [41, pytest.param(5, marks=pytest.mark.slow)])
def test_damage_at_any_place_changes_nothing_in_silence(step, store):
    check_damage(store, step)


@pytest.mark.parametrize("name", ["values/0.0", "feature/0", "base_values/0"])
def test_a_missing_block_is_noticed(name, store):
    (store / name).unlink()
    with pytest.raises(ValueError, match=rf"is damaged in block '{name}' \(it is missing\)"):
        Explanation.load(store).dataset.compute()


def test_blocks_of_zeros_are_written(tmp_path):
    zeros = Explanation.create(np.zeros((4, 2)), 0.0, np.zeros(4), np.zeros((4, 2)))
    zeros.save(tmp_path / "e.zarr")
    assert (tmp_path / "e.zarr" / "values" / "0.0").is_file()
    xr.testing.assert_equal(Explanation.load(tmp_path / "e.zarr").dataset.compute(), zeros.dataset)


@pytest.mark.parametrize("compressor", [numcodecs.Blosc(), numcodecs.Zstd(), None], ids=["blosc", "zstd", "none"])
def test_stores_of_earlier_versions_are_read(compressor, tmp_path):
    """They have no checksums, no list of arrays, and no blocks of zeros."""
    dataset = marked(explanation().dataset)
    dataset.attrs = netcdf.encode_attrs(dataset.attrs)
    dataset["feature"] = dataset["feature"].astype(object)
    encoding = {name: {"compressors": compressor} for name in dataset.variables}
    dataset.to_zarr(tmp_path / "e.zarr", zarr_format=2, consolidated=True, encoding=encoding)
    found = Explanation.load(tmp_path / "e.zarr")
    assert found.feature_names == ("a", "b")
    np.testing.assert_array_equal(found.values, VALUES)


@pytest.mark.parametrize("codec", [numcodecs.Blosc("zstd"), numcodecs.Zstd()], ids=["blosc", "zstd"])
@pytest.mark.parametrize("array", ["values", "feature"])
def test_a_block_that_unpacks_to_more_than_its_array_is_refused(array, codec, store):
    edit(store, array, compressor=codec.get_config())
    block = store / array / ("0.0" if array == "values" else "0")
    block.write_bytes(codec.encode(np.zeros(2**24, dtype=np.uint8)))
    with pytest.raises(ValueError, match="it has 16777216 bytes, and its array asks for"):
        Explanation.load(store).dataset.compute()


def test_text_that_unpacks_to_much_more_is_refused(store):
    codec = numcodecs.Blosc("zstd")
    edit(store, "feature", dtype="|O", filters=[{"id": "vlen-utf8"}], compressor=codec.get_config())
    (store / "feature" / "0").write_bytes(codec.encode(np.zeros(2**27, dtype=np.uint8)))
    with pytest.raises(ValueError, match="becomes 134217728 bytes in memory; kpp reads files that become up to 100"):
        Explanation.load(store)


def test_texts_of_another_number_are_refused(store):
    """The codec would make room for four billion texts."""
    edit(store, "feature", dtype="|O", filters=[{"id": "vlen-utf8"}], compressor=None)
    (store / "feature" / "0").write_bytes(b"\xff" * 4 + bytes(60))
    with pytest.raises(ValueError, match="another number of texts than its array asks for"):
        Explanation.load(store)


def test_arrays_much_larger_than_their_files_are_refused(store):
    edit(store, "values", shape=[150_000_000, 2], chunks=[150_000_000, 2])
    with pytest.raises(ValueError, match=r"becomes 2400\d+ bytes in memory; kpp reads files that become up to 100"):
        Explanation.load(store)


def foreign_file(store: Path) -> None:
    (store / "letter.txt").write_text("dear")


def foreign_file_in_an_array(store: Path) -> None:
    (store / "values" / "letter.txt").write_text("dear")


def foreign_folder(store: Path) -> None:
    (store / "photos").mkdir()


def foreign_array(store: Path) -> None:
    xr.Dataset({"mine": ("row", [1.0])}).to_zarr(store, mode="a", zarr_format=2)


def only_a_group(store: Path) -> None:
    shutil.rmtree(store)
    zarr.open_group(store, mode="w", zarr_format=2)
    (store / "data.csv").write_text("1,2")


def another_dataset(store: Path) -> None:
    shutil.rmtree(store)
    xr.Dataset({"values": ("row", [1.0])}).to_zarr(store, zarr_format=2)


def a_link(store: Path) -> None:
    store.rename(store.parent / "elsewhere.zarr")
    store.symlink_to(store.parent / "elsewhere.zarr")


FOREIGN = (foreign_file, foreign_file_in_an_array, foreign_folder, foreign_array, only_a_group, another_dataset, a_link)


@pytest.mark.parametrize("change", FOREIGN, ids=lambda change: change.__name__)
def test_only_what_kpp_wrote_is_replaced(change, store):
    change(store)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    with pytest.raises(FileExistsError, match=r"`path` .*e\.zarr' .*not\s+replaced"):
        explanation().save(store)
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_a_store_of_kpp_is_replaced(store):
    other = Explanation.create(2 * VALUES, 0.0, 2 * VALUES.sum(axis=1), VALUES)
    other.save(store)
    np.testing.assert_array_equal(Explanation.load(store).values, 2 * VALUES)
    Explanation.load(store).mean().save(store)  # read and replaced at once
    np.testing.assert_array_equal(Explanation.load(store).values, 2 * VALUES)


def test_blocks_of_zeros_of_a_job_are_written_and_their_loss_is_noticed(tmp_path):
    first = Explanation.create(np.zeros((2, 2)), 0.0, np.zeros(2), np.zeros((2, 2))).dataset
    blocks = read_blocks(da.zeros((4, 2)), 2)
    job = JobStore.create(tmp_path / "j.zarr", first, blocks, {"x": "1"})
    assert job.done().tolist() == [True, False]
    assert (tmp_path / "j.zarr" / "block_done" / "1").is_file()  # of its own, as blocks are done at the same time
    job.write({name: np.zeros((2, 2)[: first[name].ndim]) for name in ("values", "predictions", "data")}, 1, 2)
    assert not Explanation.load(tmp_path / "j.zarr").values.to_numpy().any()
    (tmp_path / "j.zarr" / "values" / "1.0").unlink()
    with pytest.raises(ValueError, match="is damaged in block 'values/1.0'"):
        Explanation.load(tmp_path / "j.zarr").values.to_numpy()
