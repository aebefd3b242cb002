"""Tables that are damaged, or that unpack to very much more than their file, give one error that names the file."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re

import numpy as np
import pandas as pd
import pytest

from kpp_study.jobs import command
from kpp_study.study.errors import StudyError
from kpp_study.study.reading.files import read_table

OPEN = {".csv.gz": gzip.open, ".csv.bz2": bz2.open, ".csv.xz": lzma.open}
TABLE = pd.DataFrame({"a": np.random.default_rng(0).normal(size=20), "b": list("abcde") * 4})


def write(path):
    TABLE.to_parquet(path) if path.suffix == ".parquet" else TABLE.to_csv(path, index=False)


@pytest.mark.slow_variants(".parquet-17")
@pytest.mark.nightly_variants(".parquet-3", ".csv-3")
@pytest.mark.parametrize("step", [17, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("ending", [".csv", ".parquet", *OPEN])
def test_a_damaged_table_gives_an_error_or_another_table(ending, step, tmp_path):
    """Formats with a checksum notice everything; plain text and Parquet have none, so a number may have changed."""
    write(path := tmp_path / f"table{ending}")
    whole = path.read_bytes()
    for offset in range(0, len(whole), step):
        zeroed = whole[:offset] + bytes(len(whole[offset : offset + 64])) + whole[offset + 64 :]
        flipped = whole[:offset] + bytes([whole[offset] ^ 1 << offset % 8]) + whole[offset + 1 :]
        for damaged in (zeroed, flipped, whole[:offset]):
            path.write_bytes(damaged)
            try:
                found = read_table(path, "data.path")
            except StudyError as error:
                assert re.match(r"data\.path: '.*table\.", str(error))
            else:
                assert ending not in OPEN or found.equals(TABLE)


@pytest.mark.nightly_variants(".csv.bz2")
@pytest.mark.parametrize(
    "ending", [".csv.gz", *(pytest.param(e, marks=pytest.mark.slow) for e in (".csv.bz2", ".csv.xz"))]
)
def test_a_table_that_unpacks_to_very_much_more_is_refused(ending, tmp_path):
    with OPEN[ending](tmp_path / f"bomb{ending}", "wb") as file:
        file.write(b"a,b\n")
        for _ in range(70):
            file.write(b"0,0\n" * 2**18)
    with pytest.raises(StudyError, match=r"bomb\.csv.*becomes 6\d+ bytes in memory; kpp reads files that become up to"):
        read_table(tmp_path / f"bomb{ending}", "data.path")


@pytest.mark.slow
def test_a_parquet_file_of_one_number_many_times_is_refused(tmp_path):
    pd.DataFrame({"a": np.zeros(10_000_000)}).to_parquet(tmp_path / "bomb.parquet")
    with pytest.raises(StudyError, match=r"bomb\.parquet.*becomes 80000000 bytes in memory"):
        read_table(tmp_path / "bomb.parquet", "data.path")


@pytest.mark.parametrize("ending", [".csv.gz", ".parquet"])
def test_large_tables_of_ordinary_numbers_are_read(ending, tmp_path):
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(2_000, 3)).round(3), columns=list("abc"))
    path = tmp_path / f"table{ending}"
    table.to_parquet(path) if ending == ".parquet" else table.to_csv(path, index=False)
    pd.testing.assert_frame_equal(read_table(path, "data.path"), table)


def test_a_damaged_table_to_explain_is_refused(tmp_path):
    (tmp_path / "rows.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    with pytest.raises(ValueError, match=r"rows\.parquet' can't be read"):
        command._read(tmp_path / "rows.parquet")
