"""CSV and Parquet files as they come: what a file shows is read if the study says so, and else named."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from kpp.__main__ import main
from kpp_study.study.dialect import TableFormat, seen_dialect
from kpp_study.study.errors import StudyError
from kpp_study.study.reading.kinds import read_data
from kpp_study.study.sections.config import load_study, parse_study
from kpp_study.study.sections.data_config import DataConfig

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "größe": RNG.normal(size=30).round(3),
        "ort": np.array(["Köln", "Bern, CH", "Łódź; PL"])[np.arange(30) % 3],
        "y": RNG.normal(size=30).round(3),
    }
)
WESTERN = TABLE.replace("Łódź; PL", "Besançon; FR")

# The table, how it is written, the keys that read it, and the words that name them.
DIALECTS = {
    "semicolons and decimal commas": (TABLE, {"sep": ";", "decimal": ","}, 'separator = ";", decimal = ","'),
    "semicolons": (TABLE, {"sep": ";"}, 'separator = ";"'),
    "tabs": (TABLE, {"sep": "\t"}, 'separator = "\\t"'),
    "tabs and decimal commas": (TABLE, {"sep": "\t", "decimal": ","}, 'separator = "\\t", decimal = ","'),
    "bars": (TABLE, {"sep": "|"}, 'separator = "|"'),
    "Latin-1": (WESTERN, {"encoding": "latin-1"}, 'encoding = "latin-1"'),
    "UTF-16": (TABLE, {"encoding": "utf-16"}, 'encoding = "utf-16"'),
    "German Excel": (WESTERN, {"sep": ";", "decimal": ",", "encoding": "latin-1"}, 'encoding = "latin-1"'),
}


def keys(options):
    return TableFormat(options.get("sep", ","), options.get("decimal", "."), options.get("encoding", "utf-8"))


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_a_dialect_is_named_and_its_keys_read_the_table(tmp_path, name, ending):
    table, options, said = DIALECTS[name]
    path = tmp_path / f"table{ending}"
    table.to_csv(path, index=False, **options)
    assert seen_dialect(path) == keys(options)
    with pytest.raises(StudyError) as caught:
        read_data(DataConfig(path, "y"))
    assert said in str(caught.value)
    assert "keys of [data]" in str(caught.value)
    data = read_data(DataConfig(path, "y", dialect=keys(options)))
    np.testing.assert_array_equal(data.x[:, 0], table["größe"])
    assert data.features["ort"].tolist() == table["ort"].tolist()
    np.testing.assert_array_equal(data.y, table["y"])


@pytest.mark.parametrize("name", ["German Excel", "tabs", "UTF-16"])
def test_a_new_study_writes_the_dialect_that_the_file_shows(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table, options, said = DIALECTS[name]
    table.to_csv("table.csv", index=False, **options)
    result = CliRunner().invoke(main, ["new", "study", "table.csv", "--target", "y", "--yes"])
    assert result.exit_code == 0, result.output
    assert f"The table shows {said.split(', ')[0]}, which the file says." in result.output
    data = read_data(load_study("study.toml").data)
    np.testing.assert_array_equal(data.y, table["y"])
    assert data.features["ort"].tolist() == table["ort"].tolist()


@pytest.mark.slow
def test_two_commands_lead_from_a_table_of_german_excel_to_a_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table, options, _ = DIALECTS["German Excel"]
    table.to_csv("tabelle.csv", index=False, **options)
    for command in ("new study tabelle.csv --target y --yes", "run study.toml --output results --quiet"):
        result = CliRunner().invoke(main, command.split())
        assert result.exit_code == 0, result.output
    report = (tmp_path / "results" / "report.html").read_text(encoding="utf-8")
    assert all(name in report for name in ("größe", "ort", "Köln", "Besançon; FR"))


WRONG = {
    "no names": ("1.5,2.5,3\n1,2,3\n", r"no line with the names of the columns, it begins with \['1.5', '2.5', '3'\]"),
    "a comment": ("# made by a machine\na,b,y\n1,2,3\n", "begins with a comment, '# made by a machine"),
    "fewer names than values": ("a,y\n1,2,3\n4,5,6\n", "2 names in its first line and 3 values in the second"),
    "a name twice": ("a,a,y\n1,2,3\n4,5,7\n", "more than one column called 'a'"),
    "decimal commas in quotes": ('a;y\n"1,5";2\n', 'separator = ";", decimal = ","'),
    "an unknown encoding": (None, "is not text in 'latin-99'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_pandas_would_misread_is_refused(tmp_path, name):
    text, message = WRONG[name]
    path = tmp_path / "table.csv"
    path.write_text("a,y\n1,2\n" if text is None else text)
    dialect = TableFormat(encoding="latin-99" if text is None else "utf-8")
    with pytest.raises(StudyError, match=message):
        read_data(DataConfig(path, "y", dialect=dialect))


def test_names_with_line_breaks_marks_and_a_byte_order_mark_are_read(tmp_path):
    path = tmp_path / "table.csv"
    table = TABLE.rename(columns={"größe": "a;b;c\nd", "ort": "#"})
    table.to_csv(path, index=False, encoding="utf-8-sig")
    assert read_data(DataConfig(path, "y")).units.schema.feature_names == ("a;b;c\nd", "#")


def test_few_rows_without_values_are_dropped_if_the_study_says_so(tmp_path, caplog):
    path = tmp_path / "table.csv"
    table = TABLE.assign(größe=TABLE["größe"].astype(object), unused=np.nan)
    table.loc[3, ["größe", "y"]] = np.nan
    table.loc[7, "größe"] = "?"
    table.to_csv(path, index=False)
    names = {"features": ("größe", "ort")}
    with pytest.raises(StudyError, match=r"'größe': 1, 'y': 1\) in 30 rows; drop those rows, as `missing = \"drop\"`"):
        read_data(DataConfig(path, "y", dialect=TableFormat(missing_values=("nothing",)), features=("größe",)))
    dialect = TableFormat(missing_values=("?",), missing="drop")
    data = read_data(DataConfig(path, "y", dialect=dialect, **names))
    kept = TABLE.drop(index=[3, 7])
    np.testing.assert_array_equal(data.x[:, 0], kept["größe"])
    np.testing.assert_array_equal(data.y, kept["y"])
    assert "2 of 30 rows are left out, as values are missing ('größe': 2, 'y': 1)" in caplog.text


def test_a_new_study_keeps_columns_that_lack_few_values(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pd.concat([TABLE] * 4, ignore_index=True)
    table.loc[[5, 60]] = np.nan
    table["sparse"] = np.where(np.arange(120) % 2, np.nan, np.arange(120))
    table.to_csv("table.csv", index=False)
    result = CliRunner().invoke(main, ["new", "study", "table.csv", "--target", "y", "--yes"])
    assert result.exit_code == 0, result.output
    assert 'The table shows missing = "drop", which the file says.' in result.output
    assert "Left out: 'sparse' lacks" in result.output
    data = read_data(load_study("study.toml").data)
    assert data.units.schema.feature_names == ("größe", "ort")
    np.testing.assert_array_equal(data.y, table["y"].dropna())


def test_two_whole_numbers_are_offered_as_classes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels = 1 + np.arange(30) % 2
    TABLE.assign(y=labels, zone=np.arange(30) % 4, case=np.arange(30) * 7).to_csv("table.csv", index=False)
    result = CliRunner().invoke(main, ["new", "study", "table.csv", "--target", "y", "--yes"])
    assert result.exit_code == 0, result.output
    assert "classification of 'y'" in result.output
    text = (tmp_path / "study.toml").read_text()
    assert '# categorical = ["y", "zone"]' in text
    assert "different in every row: leave it out if it is an identifier" in text
    data = read_data(load_study("study.toml").data)
    assert data.is_label
    assert data.classes == (1, 2)
    np.testing.assert_array_equal(data.y, labels - 1)
    assert data.training[1].tolist() == labels.tolist()


INDEXES = {
    "a name": (pd.Index(np.arange(30) * 2, name="case"), ("case", "größe", "ort")),
    "text": (pd.Index([f"row {i % 5}" for i in range(30)]), ("index", "größe", "ort")),
    "two names": (
        pd.MultiIndex.from_arrays([np.arange(30) % 3, np.arange(30)], names=["k", "l"]),
        ("k", "l", "größe", "ort"),
    ),
    "old row numbers": (pd.Index(np.arange(30) * 2), ("größe", "ort")),
}


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_of_parquet_is_a_column_if_it_means_something(tmp_path, name, caplog):
    index, features = INDEXES[name]
    TABLE.set_axis(index).to_parquet(tmp_path / "table.parquet")
    assert read_data(DataConfig(tmp_path / "table.parquet", "y")).units.schema.feature_names == features
    assert ("has no name and is left out" in caplog.text) == (name == "old row numbers")


def test_intervals_of_parquet_are_categories(tmp_path):
    intervals = pd.cut(TABLE["größe"], 3)
    columns = {"age": intervals.astype(intervals.cat.categories.dtype), "y": TABLE["y"]}
    pd.DataFrame(columns).to_parquet(tmp_path / "table.parquet")
    data = read_data(DataConfig(tmp_path / "table.parquet", "y"))
    assert data.units.schema.levels["age"] == tuple(sorted(map(str, intervals.cat.categories)))


def test_a_study_file_may_begin_with_a_byte_order_mark(tmp_path, study_text):
    (tmp_path / "study.toml").write_bytes(study_text.encode("utf-8-sig"))
    assert load_study(tmp_path / "study.toml").data.target == "price & tax"


def test_backslashes_of_a_path_get_the_fix():
    with pytest.raises(StudyError, match=r"not valid TOML: .*; a path with backslashes stands in single quotes"):
        parse_study('[data]\npath = "C:\\Users\\me\\t.csv"\n')


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('separator = ";;"', "data.separator must be the character .*, one character, got ';;'"),
        ('decimal = ";"', "data.decimal must be one of '.', ','"),
        ('decimal = ","', "data.separator and data.decimal must differ"),
        ('missing = "skip"', "data.missing must be one of 'refuse', 'drop'"),
        ('missing_values = "?"', "data.missing_values must be a list"),
    ],
)
def test_keys_of_the_format_are_checked(line, message):
    with pytest.raises(StudyError, match=message):
        parse_study(f'[data]\npath = "t.csv"\ntarget = "y"\n{line}\n[model]\nname = "GPRegression"\n')
