"""Tables are read the same way twice, and what does not fit the first reading is refused by name."""

import decimal
import fractions
import json

import numpy as np
import pandas as pd
import pytest

from kpp.data.tables import Schema, read_points, standardize


@pytest.fixture
def frame():
    return pd.DataFrame(
        {
            "age": [30.0, 41.0, 52.0],
            "city": ["Rome", "Bern", "Rome"],
            "ward": [7, 3, 7],
            "smoker": [True, False, True],
            "grade": pd.Categorical(["b", "a", "b"]),
        }
    )


def test_text_categories_and_named_columns_become_codes(frame):
    points, schema = read_points(frame, categorical=["ward"])
    np.testing.assert_array_equal(points, [[30, 1, 1, 1, 1], [41, 0, 0, 0, 0], [52, 1, 1, 1, 1]])
    assert schema.levels == {"city": ("Bern", "Rome"), "ward": (3, 7), "grade": ("a", "b")}
    assert schema.decode(points)["city"].tolist() == ["Rome", "Bern", "Rome"]
    assert schema.decode(points)["ward"].tolist() == [7, 3, 7]


def test_a_schema_survives_json_and_reads_columns_in_any_order(frame):
    points, schema = read_points(frame, categorical=["ward"])
    again = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert again == schema
    np.testing.assert_array_equal(again.read(frame[list(reversed(frame.columns))]), points)


def test_arrays_get_names_and_codes():
    points, schema = read_points(np.array([[1.0, 5.0], [2.0, 9.0]]), categorical=["x1"])
    np.testing.assert_array_equal(points, [[1, 0], [2, 1]])
    assert schema == Schema(("x0", "x1"), {"x1": (5.0, 9.0)})
    assert read_points(np.zeros((2, 2)), feature_names=["a", "b"])[1].feature_names == ("a", "b")


REFUSED = {
    "missing values": (
        lambda f: read_points(f.assign(age=[1, np.nan, np.nan], city=[None, "a", "b"])),
        r"missing values \('age': 2, 'city': 1\)",
    ),
    "missing column": (lambda f: read_points(f)[1].read(f.drop(columns="age")), r"lacks the columns \['age'\]"),
    "new level": (
        lambda f: read_points(f)[1].read(f.assign(city="Oslo")),
        r"unknown levels \['Oslo'\] in column 'city'",
    ),
    "text among numbers": (lambda f: read_points(f)[1].read(f.assign(age="old")), r"numbers in column 'age'"),
    "unknown categorical": (lambda f: read_points(f, categorical=["citty"]), r"unknown feature name 'citty'.*'city'"),
    "repeated column": (lambda f: read_points(f.rename(columns={"age": "ward"})), r"\['ward'\] more than once"),
    "numbers as names": (lambda f: read_points(f.rename(columns={"age": 3})), r"text as column names, got \[3\]"),
    "names for a frame": (lambda f: read_points(f, feature_names=["a"]), "has its own column names"),
    "too few names": (lambda f: read_points(np.zeros((2, 2)), feature_names=["a"]), "one name for each of the 2"),
    "levels of nothing": (lambda f: Schema(("a",), {"b": (1,)}), "unknown feature name 'b'"),
    "width of an array": (lambda f: Schema(("a",)).read(np.zeros((2, 2))), "must have 1 columns"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(case, frame):
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        call(frame)


def test_a_schema_prints_its_first_levels():
    schema = Schema(("age", "region", "name"), {"region": ("north", "south"), "name": tuple("abcdefgh")})
    assert repr(schema) == "Schema(age, region in {north, south}, name in {a, b, c, d, e, ... 8 levels})"


def test_a_schema_of_some_columns():
    whole = Schema(("age", "kind", "treated"), {"kind": ("a", "b")}, ("treated",))
    assert whole.select(["treated", "kind"]) == Schema(("treated", "kind"), {"kind": ("a", "b")}, ("treated",))
    assert whole.select(["age"]) == Schema(("age",))
    with pytest.raises(ValueError, match="unknown feature name 'kin'"):
        whole.select(["kin"])


NUMBERS_WITH_GAPS = {
    "six question marks among 398 numbers": (
        pd.Series([f"{i}.0" for i in range(392)] + ["?"] * 6),
        r"column 'power', got entries most of which are numbers: all but '\?' \(6 times\)",
    ),
    "numbers and text as objects": (
        pd.Series([1.5, 2.5, "n/a"], dtype=object),
        r"most of which are numbers: all but 'n/a' \(1 times\); convert them",
    ),
    "nothing but numbers as text": (pd.Series(["1", "2.5", "-3e2"]), "most of which are numbers: all of them, as text"),
    "decimal commas": (pd.Series(["1,5", "2,25", "0,5"]), "all of them, as text"),
    "numbers and a boolean": (pd.Series([1.5, 2.5, True], dtype=object), r"all but True \(1 times\)"),
    "many other entries": (pd.Series(list("abcdefg") + ["1"] * 20), r"'e' \(1 times\) and 2 others"),
    "lists": (pd.Series([[1], [2]]), "must hold numbers or categories in column 'power': unhashable type: 'list'"),
}


@pytest.mark.parametrize("case", NUMBERS_WITH_GAPS)
@pytest.mark.parametrize("read", [read_points, standardize])
def test_a_column_of_numbers_with_other_entries_is_not_taken_for_categories(case, read):
    column, message = NUMBERS_WITH_GAPS[case]
    with pytest.raises(ValueError, match=message):
        read(pd.DataFrame({"power": column}))


@pytest.mark.parametrize("kind", [decimal.Decimal, fractions.Fraction, float, int, np.float32, np.int64])
def test_objects_that_are_numbers_are_numbers(kind):
    column = pd.Series([kind(entry) for entry in (3, 1, 2)], dtype=object)
    points, schema = read_points(pd.DataFrame({"power": column}))
    assert not schema.categories
    np.testing.assert_array_equal(points, [[3.0], [1.0], [2.0]])


def test_numbers_as_text_are_categories_where_the_user_says_so():
    text = pd.Series(["10", "9", "10"])
    for frame, named in (
        (pd.DataFrame({"zone": text.astype("category")}), ()),
        (pd.DataFrame({"zone": text}), ["zone"]),
    ):
        points, schema = read_points(frame, categorical=named)
        assert schema.levels == {"zone": ("10", "9")}
        np.testing.assert_array_equal(points[:, 0], [0, 1, 0])


def test_text_of_which_less_than_half_are_numbers_is_a_category():
    assert read_points(pd.DataFrame({"code": ["1", "2b", "c", "3", "d"]}))[1].levels == {
        "code": ("1", "2b", "3", "c", "d")
    }


def test_intervals_are_categories_by_their_text():
    frame = pd.DataFrame({"age": pd.cut([1.0, 5.0, 9.0, 2.0], [0, 3, 6, 10])})
    points, schema = read_points(frame)
    assert schema.levels == {"age": ("(0, 3]", "(3, 6]", "(6, 10]")}
    np.testing.assert_array_equal(points[:, 0], [0, 1, 2, 0])
    again = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    np.testing.assert_array_equal(again.read(frame.astype(object)), points)


def test_text_where_numbers_are_known_is_refused_with_the_entries():
    schema = Schema(("power",))
    with pytest.raises(ValueError, match=r"numbers in column 'power': got text, such as '130', '\?'"):
        schema.read(pd.DataFrame({"power": ["130", "?"]}))
