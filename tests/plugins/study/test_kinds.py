"""Studies of bags, matches and tables with a causal graph: what is read, what is refused, and what comes out."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import kpp
from kpp.data.bags import Bags
from kpp.preferences import Matches
from kpp_study.study.errors import StudyError
from kpp_study.study.output import kept_fit
from kpp_study.study.reading.kinds import read_data
from kpp_study.study.runner import run_study
from kpp_study.study.sections.config import load_study


@pytest.fixture(scope="module")
def example_files(root, tmp_path_factory) -> Path:
    """A folder with the example studies and their data."""
    folder = tmp_path_factory.mktemp("examples")
    spec = importlib.util.spec_from_file_location("study_data", root / "examples" / "study_data.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.__file__ = str(folder / "study_data.py")
    script.main()
    for kind in ("bags", "matches", "graph", "effects"):
        text = (root / "examples" / f"{kind}.toml").read_text(encoding="utf-8")
        (folder / f"{kind}.toml").write_text(text, encoding="utf-8")
    return folder


def changed(example_files, tmp_path, kind, *edits):
    """Read a study with edits of its text, whose files lie in the folder of the examples."""
    text = (example_files / f"{kind}.toml").read_text(encoding="utf-8")
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new, 1)
    path = example_files / f"{tmp_path.name}.toml"
    path.write_text(text, encoding="utf-8")
    return load_study(path)


@pytest.mark.slow_variants("effects")
@pytest.mark.parametrize("kind", ["bags", "matches", "graph", "effects"])
def test_the_example_fits_its_model(example_files, kind):
    config = load_study(example_files / f"{kind}.toml")
    data = read_data(config.data)
    prepared, arrays, schema = config.model.prepare(*data.training, **data.options)
    assert tuple(schema.feature_names) == data.units.schema.feature_names
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in (data.x, data.y))


def test_bags_are_scaled_and_stay_together(example_files):
    data = read_data(load_study(example_files / "bags.toml").data)
    places, districts = (pd.read_csv(example_files / f"{name}.csv") for name in ("places", "districts"))
    assert isinstance(data.training[0], Bags) and data.training[0].num_bags == 20 and data.num_points == 100
    np.testing.assert_allclose(data.y, districts["rain"])
    bags = data.training[0]
    means = np.asarray(bags.means(bags.points))[:, 0]
    height = places["height"]
    expected = (height.groupby(places["district"]).mean() - height.mean()) / height.std(ddof=0)
    np.testing.assert_allclose(means, expected, rtol=1e-6)  # JAX may store single precision
    covariate = np.asarray(data.training[0].covariates)[:, 0]
    np.testing.assert_allclose([covariate.mean(), covariate.std()], [0.0, 1.0], atol=1e-6)
    assert data.observed is None


def test_targets_at_their_own_covariates_are_scaled_like_the_bags(example_files, tmp_path):
    districts = pd.read_csv(example_files / "districts.csv")
    districts[["mean height", "rain"]][3:15].to_csv(example_files / "measured.csv", index=False)
    config = changed(example_files, tmp_path, "bags", ('target = "rain"', 'target = "rain"\ntargets = "measured.csv"'))
    data = read_data(config.data)
    assert data.y.size == 12
    expected = np.asarray(data.training[0].covariates)[3:15, 0]
    np.testing.assert_allclose(data.options["covariates"]["mean height"], expected, rtol=1e-6)
    prepared = config.model.prepare(*data.training, **data.options)[1]
    assert prepared["target_covariates"].shape == (12, 1)


def test_matches_have_the_names_and_scaled_features_of_their_items(example_files):
    data = read_data(load_study(example_files / "matches.toml").data)
    items, played = (pd.read_csv(example_files / f"{name}.csv") for name in ("players", "matches"))
    assert isinstance(data.points, Matches) and data.points.num_matches == len(played) == 120
    expected = (items["speed"] - items["speed"].mean()) / items["speed"].std(ddof=0)
    np.testing.assert_allclose(data.points.items[:, 0], expected, rtol=1e-6)
    order = {name: number for number, name in enumerate(items["player"])}
    won = played["winner"].map(order) < played["loser"].map(order)
    assert data.y.sum() == won.sum() and data.is_label  # the lower item number comes first
    assert data.counted == "120 matches between 15 items"
    wins, losses = np.asarray(data.points.wins)[0], np.asarray(data.points.losses)[0]
    assert data.observed[0] == f"{max(wins, losses):g} to {min(wins, losses):g}"


def test_a_graph_decides_the_parts_of_the_model(example_files, tmp_path):
    config = load_study(example_files / "graph.toml")
    data = read_data(config.data)
    assert config.decided == {"children": ("marker",), "spouses": ("weight",), "parents": ("dose",)}
    further = pd.read_csv(example_files / "patients_without_response.csv")
    known = pd.read_csv(example_files / "patients.csv")
    expected = (further["dose"] - known["dose"].mean()) / known["dose"].std(ddof=0)
    np.testing.assert_allclose(data.options["unlabeled"]["dose"], expected, rtol=1e-9)
    for name, text in (
        ("graph.dot", "digraph { dose -> response -> marker; weight -> marker }"),
        ("graph.txt", "dag { dose -> response -> marker <- weight }"),
    ):
        (example_files / name).write_text(text, encoding="utf-8")
        old = 'graph = "digraph { dose -> response -> marker; weight -> marker }"'
        assert changed(example_files, tmp_path, "graph", (old, f'graph = "{name}"')).decided == config.decided


EDGES = 'age -> drug; age -> "blood pressure"; drug -> "blood pressure"; exercise -> "blood pressure"'
GRAPH = f"graph = 'digraph {{ {EDGES} }}'"


def test_a_graph_decides_or_checks_what_to_adjust_for(example_files, tmp_path):
    data = read_data(load_study(example_files / "effects.toml").data)
    trial, cohort = (pd.read_csv(example_files / f"{name}.csv") for name in ("trial", "cohort"))
    assert list(data.training[0]["treatment"]) == ["drug", "exercise"]
    assert list(data.training[0]["adjusting"]) == ["age"]
    pressure = trial["blood pressure"]
    expected = (cohort["blood pressure"] - pressure.mean()) / pressure.std(ddof=0)  # the scales of the trial
    np.testing.assert_allclose(data.options["mediators"]["blood pressure"], expected, rtol=1e-9)
    np.testing.assert_allclose(data.y, cohort["risk"])
    given = changed(example_files, tmp_path, "effects", (GRAPH, f'{GRAPH}\nadjusting = ["age"]'))
    assert read_data(given.data).training[0]["adjusting"].equals(data.training[0]["adjusting"])
    without = changed(example_files, tmp_path, "effects", (GRAPH, ""))
    assert "adjusting" not in read_data(without.data).training[0]
    edges = 'age [latent=true]; age -> drug; age -> "blood pressure"; drug -> stiffness -> "blood pressure"'
    hidden = f"graph = 'digraph {{ {edges} }}'"
    trial.assign(stiffness=trial["drug"]).to_csv(example_files / "stiff.csv", index=False)
    edits = [
        (GRAPH, f'{hidden}\nadjusting = ["stiffness"]'),
        ('"trial.csv"', '"stiff.csv"'),
        ('["drug", "exercise"]', '["drug"]'),
    ]
    front_door = read_data(changed(example_files, tmp_path, "effects", *edits).data)
    assert list(front_door.training[0]["adjusting"]) == ["stiffness"]


@pytest.mark.parametrize(
    ("kind", "old", "new", "message"),
    [
        ("effects", 'targets = "cohort.csv"', 'targets = "players.csv"', "data.outcome: there is no column 'blood pre"),
        ("effects", 'outcome = ["blood pressure"]', "", "data.outcome is missing: the columns of outcomes"),
        ("effects", 'features = ["drug", "exercise"]', "", "data.features is missing: the treatments"),
        ("effects", GRAPH, f'{GRAPH}\nadjusting = ["exercise"]', "data.graph: |data.adjusting does not fit"),
        ("effects", "age -> drug", "age [latent=true]; age -> drug", "data.graph: no columns of data.path adjust"),
        ("bags", 'bag = "district"', 'bag = "distrikt"', "data.bag: there is no column 'distrikt' in 'places.csv'"),
        ("bags", 'bags = "districts.csv"', 'bags = "none.csv"', "data.bags: there is no file"),
        ("bags", '["mean height"]', '["height"]', "data.covariates: there is no column 'height' in 'districts.csv'"),
        ("bags", 'target = "rain"', 'target = "snow"', "data.target: there is no column 'snow' in 'districts.csv'"),
        (
            "bags",
            'covariates = ["mean height"]',
            'targets = "districts.csv"',
            "data.covariates is missing: they are the columns that join",
        ),
        ("matches", 'item = "player"', 'item = "name"', "data.item: there is no column 'name' in 'players.csv'"),
        ("matches", 'winner = "winner"', 'winner = "first"', "data.winner: there is no column 'first' in 'matches"),
        ("matches", 'loser = "loser"', 'loser = "loser"\ntie = "tied"', "data.tie: there is no column 'tied'"),
        ("matches", 'items = "players.csv"', 'items = "districts.csv"', "data.item: there is no column 'player'"),
        ("graph", "digraph {", "digraph [", "data.graph: "),
        ("graph", "dose -> response -> marker", "dose -> marker", "data.graph: .*'response'"),
        ("graph", 'graph = "digraph', 'graph = "lost.dot"\n#', "data.graph: .* can't be read"),
        ("graph", '"patients_without_response.csv"', '"places.csv"', "data.unlabeled: there is no column 'dose'"),
    ],
)
def test_files_that_do_not_fit_are_refused(example_files, tmp_path, kind, old, new, message):
    with pytest.raises(StudyError, match=message):
        read_data(changed(example_files, tmp_path, kind, (old, new)).data)


@pytest.mark.parametrize(
    ("kind", "edits", "message"),
    [
        ("matches", [('name = "pref-shap"', 'name = "rkhs-shap"')], "matches need an explainer of pairs"),
        (
            "bags",
            [("[explainer]", '[explainer]\nname = "pref-shap"\nvalue_function = "preferential-items"')],
            "only data of the kind 'matches'",
        ),
        ("graph", [('name = "ColliderRegression"', 'name = "CMP"')], "needs a model with the fields children, spouses"),
        ("graph", [("[model.kernel]", 'children = ["dose"]\n[model.kernel]')], "model.children must be left out"),
        ("matches", [('name = "PGP" ', 'name = "GPRegression" ')], r"\[model\]"),
    ],
)
def test_models_and_explainers_that_do_not_fit_are_refused_before_the_fit(
    example_files, tmp_path, kind, edits, message
):
    with pytest.raises(StudyError, match=message):
        run_study(changed(example_files, tmp_path, kind, *edits), tmp_path / "results", progress=False)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("kind", ["bags", "matches", "effects"])
def test_a_kept_fit_belongs_to_its_data(example_files, tmp_path, kind):
    """What a model is fitted to is part of the digest, so that --resume never goes on with other data.

    Texts, as those of a treatment, are other objects at each reading.
    """
    config = load_study(example_files / f"{kind}.toml")
    table = pd.read_csv(config.data.path)
    if kind == "effects":
        table["exercise"] = np.where(table["exercise"] > 2.5, "much", "little")

    def digests():
        table.to_csv(tmp_path / config.data.path.name, index=False)
        data = dataclasses.replace(config.data, path=tmp_path / config.data.path.name)
        return kept_fit(tmp_path / "results", config, read_data(data)).digests

    kept = digests()
    assert kept == digests()
    if kind == "matches":
        table.loc[0] = table.loc[0].to_numpy()[::-1]
    else:
        column = {"bags": "height", "effects": "exercise"}[kind]
        table.loc[0, column] = table[column].unique()[-1]
    name = f"the table '{config.data.path.name}'"
    assert {found for found, digest in digests().items() if digest != kept[found]} == {name}


@pytest.mark.nightly_variants("effects", "bags", "matches")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bags", "matches", "graph", "effects"])
def test_an_example_study_finds_what_was_simulated(example_files, tmp_path, kind):
    """The most important feature; for bags the field itself, whose standard deviation is 260, within 60.

    The effect of the drug is -3 * 0.3 per unit. Without adjustment for age it would be -0.57: the adjusted slope must
    be nearer to -0.9.
    """
    inference = 'name = "Laplace"\nnum_samples = 100' if kind == "effects" else 'name = "MAP"'
    edits = [('name = "Laplace"\nnum_samples = 200', inference), ("instances = 20", "instances = 10")]
    config = changed(example_files, tmp_path, kind, *edits)
    folder = run_study(config, tmp_path / "results", progress=False)
    explanation = kpp.Explanation.load(folder / "explanation.nc")
    mean = explanation.mean()
    importance = abs(mean.values).mean("instance")
    most_important = {"bags": "height", "matches": "speed", "graph": "dose", "effects": "drug"}
    assert importance.idxmax("feature").item() == most_important[kind]
    assert float(explanation.additivity_error().max()) < 1e-8 * float(abs(explanation.predictions).max())
    report = (folder / "report.html").read_text(encoding="utf-8")
    if kind == "bags":
        height = pd.read_csv(example_files / "places.csv")["height"].to_numpy()[mean.predictions["instance"]]
        assert np.sqrt(np.mean((mean.predictions - (600.0 + 0.4 * height)) ** 2)) < 60.0
        np.testing.assert_allclose(mean.data.sel(feature="height"), height, rtol=1e-6)
        assert "20 aggregates and 20 bags with 100 points" in report and ">observed<" not in report
    if kind == "effects":
        slope = np.polyfit(mean.data.sel(feature="drug"), mean.values.sel(feature="drug"), 1)[0]
        assert -1.0 < slope < -0.735 and "60 treatments and 40 targets" in report
        assert ">predictive check" in report.lower() and "interval of a new observation" not in report
    if kind == "matches":
        assert "player" in str(mean.values["instance"].values[0]) and "120 matches between 15 items" in report
