"""The JSON Schema of study files accepts what is read, refuses what is not, and describes every key."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
from click.testing import CliRunner

from kpp import registry
from kpp.__main__ import main
from kpp_study.study.errors import StudyError
from kpp_study.study.sections.config import parse_study
from kpp_study.study.sections.data_config import KINDS
from kpp_study.study.sections.schema import study_schema

EXAMPLES = ("diabetes", "matches", "bags", "graph", "effects")
TYPES = {"string": str, "number": (int, float), "integer": int, "boolean": bool, "array": list, "object": dict}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return study_schema()


def accepts(schema: dict[str, Any], value: Any, whole: dict[str, Any]) -> bool:
    """A small validator of the keywords that the schema uses; an unknown keyword is an error."""
    checks = {
        "$ref": lambda ref: accepts(whole["definitions"][ref.rpartition("/")[2]], value, whole),
        "additionalProperties": lambda _: set(value) <= set(schema["properties"]),
        "allOf": lambda parts: all(accepts(part, value, whole) for part in parts),
        "anyOf": lambda parts: any(accepts(part, value, whole) for part in parts),
        "const": lambda constant: value == constant,
        "enum": lambda words: value in words,
        "items": lambda part: all(accepts(part, item, whole) for item in value),
        "minItems": lambda least: len(value) >= least,
        "minLength": lambda least: len(value) >= least,
        "minimum": lambda least: value >= least,
        "oneOf": lambda parts: sum(accepts(part, value, whole) for part in parts) == 1,
        "properties": lambda parts: all(accepts(parts[key], value[key], whole) for key in parts if key in value),
        "required": lambda names: all(name in value for name in names),
        "type": lambda kinds: any(_is(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)),
        "uniqueItems": lambda _: len({repr(item) for item in value}) == len(value),
    }
    silent = {"$schema", "title", "definitions", "default", "description"}
    ordered = sorted(set(schema) - silent, key=lambda keyword: keyword != "type")
    return all(checks[keyword](schema[keyword]) for keyword in ordered)


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_studies_are_accepted(root, schema, name):
    table = tomllib.loads((root / "examples" / f"{name}.toml").read_text(encoding="utf-8"))
    assert accepts(schema, table, schema)


WRONG = [
    ("[data]", "[dta]"),
    ('target = "price & tax"', 'tarket = "price & tax"'),
    ('target = "price & tax"', ""),
    ("seed = 3", "seed = -1"),
    ("instances = [0, 7, 19]", "instances = [0, 0]"),
    ("instances = [0, 7, 19]", 'instances = "some"'),
    ("max_draws = 20", "max_draws = 0"),
    ('name = "GPRegression"', 'name = "GPRegresion"'),
    ("noise_variance =", "noise ="),
    ("num_warmup = 60", 'num_warmup = "many"'),
    ("num_warmup = 60", "num_warmups = 60"),
    ('name = "NUTS"', 'name = "NUT"'),
    ('value_function = "interventional"', 'value_function = "magic"'),
    ("background = 12", "background = 12\nno_option = 1"),
    ('prior = "HalfNormal"', 'prior = "HalfNormall"'),
    ('path = "rooms.csv"', 'kind = "bags"\npath = "rooms.csv"'),
    ('path = "rooms.csv"', 'kind = "no such kind"\npath = "rooms.csv"'),
]


@pytest.mark.parametrize(("old", "new"), WRONG)
def test_what_a_study_refuses_is_refused(schema, study_text, old, new):
    assert old in study_text and accepts(schema, tomllib.loads(study_text), schema)
    assert not accepts(schema, tomllib.loads(study_text.replace(old, new, 1)), schema)


def test_every_key_that_is_read_is_described(schema, study_text):
    """A key that the schema does not have is refused by the reader, and the message lists the keys of the schema."""
    for kind, branch in zip(KINDS, schema["properties"]["data"]["oneOf"], strict=True):
        required = [name for name in branch["required"] if name != "kind"]
        values = {name: '["x"]' if branch["properties"][name]["type"] == "array" else '"x"' for name in required}
        lines = [f'kind = "{kind}"', *(f"{name} = {value}" for name, value in values.items()), "zzz = 1"]
        text = re.sub(r"\[data\]\n(.*\n){2}", "\n".join(["[data]", *lines, ""]), study_text)
        with pytest.raises(StudyError, match="unknown key 'zzz'; known are (.*)") as caught:
            parse_study(text)
        listed = re.findall(r"'(\w+)'", str(caught.value).partition("known are")[2])
        assert listed == sorted(branch["properties"])
        for name in required:
            with pytest.raises(StudyError, match=f"data.{name} is missing"):
                parse_study(text.replace(f"{name} = {values[name]}\n", "", 1))


def test_all_plugins_are_there_with_their_descriptions(schema):
    for kind, branches in (
        ("models", schema["properties"]["model"]["oneOf"]),
        ("explainers", schema["properties"]["explainer"]["oneOf"]),
        ("kernels", schema["definitions"]["kernel"]["oneOf"]),
    ):
        names = [branch["properties"]["name"]["const"] for branch in branches]
        assert names == list(getattr(registry, kind)())
        assert all(branch["properties"]["name"]["description"] for branch in branches)
    models = schema["properties"]["model"]["oneOf"]
    regression = next(branch for branch in models if branch["properties"]["name"]["const"] == "GPRegression")
    assert "squared units of y" in regression["properties"]["noise_variance"]["description"]


def test_the_command_prints_the_schema(schema):
    result = CliRunner().invoke(main, ["schema"])
    assert result.exit_code == 0 and json.loads(result.output) == json.loads(json.dumps(schema))
