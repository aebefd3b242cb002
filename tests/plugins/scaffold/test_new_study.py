"""`kpp new study`: what it writes, asks and refuses; and that `kpp run` takes the file unchanged."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from kpp.__main__ import main
from kpp.explanations import Explanation
from kpp_study import load_study
from kpp_study.study.reading.kinds import read_data


def flats(num_rows: int = 30) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    area, floor = rng.uniform(20, 120, num_rows), rng.integers(0, 6, num_rows)
    town = np.array(["Bern", "Rome"])[rng.integers(0, 2, num_rows)]
    rent = 300 + 9 * area + 200 * (town == "Rome") + 40 * rng.normal(size=num_rows)
    return pd.DataFrame({"area": area, "floor": floor, "town": town, "rent": rent, "country": "CH"})


def spam(num_rows: int = 24) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    links, capitals = rng.normal(size=(2, num_rows))
    label = np.where(links + 0.5 * rng.normal(size=num_rows) > 0, "spam", "ham")
    return pd.DataFrame({"links": links, "capitals": capitals, "label": label})


def exact(num_rows: int = 25) -> pd.DataFrame:
    a, b = np.random.default_rng(2).normal(size=(2, num_rows))
    return pd.DataFrame({"a": a, "b": b, "y": a + np.sin(b)})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with three tables."""
    monkeypatch.chdir(tmp_path)
    flats().to_csv("flats.csv", index=False)
    spam().to_csv("spam.csv", index=False)
    exact().to_csv("exact.csv", index=False)
    return tmp_path


def new_study(*arguments: str, answers: str | None = None) -> Result:
    return CliRunner().invoke(main, ["new", "study", *arguments], input=answers)


def contents(path: str | Path = "study.toml") -> dict:
    return tomllib.loads(Path(path).read_text(encoding="utf-8"))


@pytest.mark.nightly_variants("spam.csv-label-features1", "exact.csv-y-features2")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "target", "features"),
    [
        ("flats.csv", "rent", ["area", "floor", "town"]),
        ("spam.csv", "label", ["links", "capitals"]),
        ("exact.csv", "y", ["a", "b"]),  # without noise
    ],
)
def test_the_study_runs_unchanged(folder: Path, table: str, target: str, features: list[str]):
    assert new_study(table, "--target", target).exit_code == 0
    result = CliRunner().invoke(main, ["run", "study.toml", "--quiet"])
    assert result.exit_code == 0, result.output + str(result.exception)
    explanation = Explanation.load(folder / "study-results" / "explanation.nc")
    assert explanation.feature_names == tuple(features)
    assert len(explanation) == len(pd.read_csv(table))  # at most 40
    assert float(explanation.additivity_error().max()) < 1e-6 * float(np.abs(explanation.predictions).max())
    assert explanation.attrs["value_function"] == "interventional"
    assert (folder / "study-results" / "report.html").exists()


@pytest.mark.parametrize("inference", ["quick", "full"])
@pytest.mark.parametrize(("table", "target"), [("flats.csv", "rent"), ("flats.csv", "town"), ("spam.csv", "label")])
def test_every_part_of_the_study_is_valid(folder: Path, table: str, target: str, inference: str):
    result = new_study(table, "--target", target, "--inference", inference)
    assert result.exit_code == 0, result.output
    config = load_study("study.toml")
    data = read_data(config.data)
    config.model.prepare(*data.training)
    assert type(config.model).__name__ == ("GPRegression" if target == "rent" else "GPClassification")
    assert type(config.inference).__name__ == {"quick": "Laplace", "full": "NUTS"}[inference]
    assert config.explainer.options == {"value_function": "interventional"}


def test_choices_are_written_and_reported(folder: Path):
    result = new_study("flats.csv", "--target", "rent")
    assert "Wrote study.toml: regression of 'rent' on 3 features." in result.output
    assert "Left out: 'country' has the same value in every row" in result.output
    assert "First runs on two cores took 36 s with 100, 57 s with 400" in result.output
    assert "By these times this table of" in result.output
    assert result.output.endswith("Next: kpp run study.toml\n")
    study = contents()
    assert study["data"] == {
        "path": "flats.csv", "target": "rent", "standardize": True, "features": ["area", "floor", "town"]
    }  # fmt: skip
    numbers, town = study["model"]["kernel"]["kernels"]
    assert (numbers["name"], numbers["on"]) == ("RBF", ["area", "floor"])
    assert numbers["lengthscale"] == {
        "prior": "LogNormal", "loc": round(math.log(math.sqrt(2)), 2), "scale": 1.0, "expand": [2]
    }  # fmt: skip
    assert (town["name"], town["on"]) == ("Categorical", ["town"])
    text = Path("study.toml").read_text(encoding="utf-8")
    assert '#   "country" has the same value in every row\n' in text
    assert max(map(len, text.splitlines())) <= 120


def test_numbers_alone_have_one_kernel_and_categories_alone_have_a_variance(folder: Path):
    new_study("flats.csv", "--target", "rent", "--features", "area, floor")
    assert contents()["model"]["kernel"]["name"] == "RBF"
    text = Path("study.toml").read_text(encoding="utf-8")
    assert '#   "town" was not chosen\n' in text
    new_study("flats.csv", "--target", "rent", "--features", "town", "--overwrite")
    (town,) = contents()["model"]["kernel"]["kernels"]
    assert town["variance"]["prior"] == "LogNormal"
    load_study("study.toml")  # builds the model


def test_hostile_names_of_columns_are_kept(folder: Path):
    names = ["a, b", 'say "hi"', "back\\slash", "line\nbreak", "日本", "[model]", "#", "\x7f"]
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(12, len(names) + 1)), columns=[*names, "y = 1"])
    table.to_csv("odd name.csv", index=False)
    result = new_study("odd name.csv", "--target", "y = 1", "--features", '"a, b",[model],"#"')
    assert result.exit_code == 0, result.output
    assert contents()["data"]["features"] == ["a, b", "[model]", "#"]
    assert new_study("odd name.csv", "--target", "y = 1", "--overwrite").exit_code == 0
    assert contents()["data"]["features"] == names
    assert read_data(load_study("study.toml").data).x.shape == (12, len(names))


def test_the_path_of_the_table_starts_at_the_study(folder: Path):
    result = new_study("flats.csv", "--target", "rent", "--output", "studies/of rent.toml")
    assert result.output.endswith("Next: kpp run 'studies/of rent.toml'\n")
    assert contents("studies/of rent.toml")["data"]["path"] == "../flats.csv"
    assert read_data(load_study("studies/of rent.toml").data).num_points == 30


@pytest.mark.parametrize("features", ["area,floor", "all"])
def test_many_rows_get_inducing_points(folder: Path, features: str):
    flats(1500).to_csv("many.csv", index=False)
    assert new_study("many.csv", "--target", "rent", "--features", features).exit_code == 0
    study = contents()
    assert (study["model"]["latent"], study["model"]["num_inducing"]) == ("inducing", 100)
    assert study["explainer"]["background"] == 200
    config = load_study("study.toml")
    model, data, schema = config.model.prepare(*read_data(config.data).training)
    assert model.inducing_points.shape == (100, schema.num_features)
    if "town" in schema.feature_names:  # 0 and 1 are the codes of the two towns
        assert set(np.unique(np.asarray(model.inducing_points)[:, schema.index("town")])) == {0.0, 1.0}


def test_there_are_no_more_inducing_points_than_different_rows(folder: Path):
    flats(1500).to_csv("many.csv", index=False)
    assert new_study("many.csv", "--target", "rent", "--features", "floor,town").exit_code == 0
    assert contents()["model"]["num_inducing"] == 12  # six floors in two towns
    config = load_study("study.toml")
    model, _, _ = config.model.prepare(*read_data(config.data).training)
    assert len(np.unique(np.asarray(model.inducing_points), axis=0)) == 12


def test_many_labels_get_natural_gradients(folder: Path):
    spam(1500).to_csv("many.csv", index=False)
    assert new_study("many.csv", "--target", "label").exit_code == 0
    assert contents()["model"]["latent"] == "inducing"
    assert contents()["inference"]["name"] == "NaturalGradient"
    load_study("study.toml")  # builds the model and the inference


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody answers questions."""
    monkeypatch.setattr("kpp_study.scaffold.command.is_terminal", lambda: True)


def test_five_questions_are_asked(folder: Path, terminal: None):
    result = new_study(answers="flats.csv\nrent\n\narea,town\nfull\n")
    assert result.exit_code == 0, result.output
    assert "flats.csv has 30 rows and the columns area, floor, town, rent, country" in result.output
    assert "[regression]" in result.output  # the default of the third question
    study = contents()
    assert study["data"]["features"] == ["area", "town"]
    assert study["inference"]["name"] == "NUTS"


def test_a_wrong_answer_is_asked_again(folder: Path, terminal: None):
    result = new_study(
        answers="flat.csv\nflats.csv\nrant\nrent\nclassification\nregression\ncountry\nall\nfast\nquick\n"
    )
    assert result.exit_code == 0, result.output
    for message in (
        "Error: DATA: there is no file 'flat.csv'",
        "Error: --target: there is no column 'rant' in 'flats.csv'; did you mean 'rent'?",
        "Error: --task classification needs a target with two classes",
        "Error: --features: the column 'country' has the same value in every row",
        "Error: --inference must be quick or full, got 'fast'",
    ):
        assert message in result.output
    assert contents()["data"]["features"] == ["area", "floor", "town"]


def test_what_is_given_is_not_asked(folder: Path, terminal: None):
    given = ["flats.csv", "--target", "rent", "--task", "regression", "--features", "all"]
    result = new_study(*given, answers="\n")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("The inference, quick")
    assert new_study(*given, "--yes", "--overwrite").output.startswith("Wrote study.toml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "DATA is missing: kpp new study DATA --target COLUMN"),
        (("flats.csv",), "--target is missing"),
        (("flats.txt", "--target", "rent"), "DATA: there is no file 'flats.txt'"),
        (("flats.csv", "--target", "rant"), "--target: there is no column 'rant' in 'flats.csv'; did you mean 'rent'?"),
        (("flats.csv", "--target", "rent", "--task", "ranking"), "--task must be regression or classification"),
        (("flats.csv", "--target", "rent", "--features", "aera"), "did you mean 'area'?"),
        (("flats.csv", "--target", "rent", "--features", "rent"), "--features: there is no column 'rent'"),
        (("flats.csv", "--target", "rent", "--features", "country"), "'country' has the same value in every row"),
        (("flats.csv", "--target", "rent", "--features", ""), "--features must name at least one column"),
        (("flats.csv", "--target", "rent", "--inference", "fast"), "--inference must be quick or full, got 'fast'"),
        (("flats.csv", "--target", "rent", "--output", "flats.csv/a.toml"), "--output: 'flats.csv/a.toml' can't be"),
    ],
)
def test_errors_are_one_line(folder: Path, arguments: tuple[str, ...], message: str):
    result = new_study(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("kpp new study: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not Path("study.toml").exists()


def test_a_table_without_usable_columns_is_an_error(folder: Path):
    pd.DataFrame({"y": [1.0, 2.0, 4.0], "c": 1}).to_csv("one.csv", index=False)
    result = new_study("one.csv", "--target", "y")
    assert result.exit_code == 2
    assert "no column that can be a feature: 'c' has the same value in every row" in result.stderr


def test_a_study_is_replaced_only_when_asked(folder: Path):
    Path("study.toml").write_text("mine", encoding="utf-8")
    result = new_study("flats.csv", "--target", "rent")
    assert result.exit_code == 2
    assert "'study.toml' exists; add --overwrite to replace it" in result.stderr
    assert Path("study.toml").read_text(encoding="utf-8") == "mine"
    assert new_study("flats.csv", "--target", "rent", "--overwrite").exit_code == 0
