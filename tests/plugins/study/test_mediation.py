"""Studies of mediation, `mediators` beside `treatment`: what is read, what is refused, and the reported effects."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import kpp
import kpp_models
from kpp_models.treatments.mediation.effects import MediationEffects
from kpp_study.report import sentences
from kpp_study.study.errors import StudyError
from kpp_study.study.output import check_output
from kpp_study.study.plan import make_plan
from kpp_study.study.reading.kinds import read_data
from kpp_study.study.runner import run_study
from kpp_study.study.sections.config import parse_study

GRAPH = "age -> dose; age -> stress; age -> sleep; dose -> stress; dose -> sleep; stress -> sleep; sleep -> visits"
STUDY = """
[data]
kind = "graph"
path = "people.csv"
target = "sleep"
treatment = "dose"
mediators = ["stress"]
at = [0.0, 1.0]
graph = "digraph { GRAPH }"

[model]
name = "GPRegression"
noise_variance = 0.1

[model.kernel]
name = "RBF"
lengthscale = 2.0

[inference]
name = "MAP"

[explainer]
instances = 3
background = 5
"""
TEXT = "age -> dose; age -> sleep; dose -> mood; mood -> sleep"


def people():
    """A table of 80 people without interactions: the direct effect of a unit is 0.4, and the indirect one 0.8."""
    rng = np.random.default_rng(2)
    age, noise = rng.normal(size=80), rng.normal(size=(3, 80))
    dose = 0.5 * age + noise[0]
    stress = 0.5 * age - 0.8 * dose + 0.6 * noise[1]
    sleep = 7.0 + 0.4 * dose - 1.0 * stress - 0.3 * age + 0.5 * noise[2]
    table = pd.DataFrame({"age": age, "dose": dose, "stress": stress, "sleep": sleep, "visits": sleep + 1.0})
    return table.assign(arm=np.where(dose > 0.0, "new", "old"), mood=np.where(stress > 0.0, "bad", "good"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("mediation")
    people().to_csv(place / "people.csv", index=False)
    return place


def read(folder, old="", new="", graph=GRAPH):
    """Read the study with a graph and one edit of its text."""
    text = STUDY.replace("GRAPH", graph)
    assert old in text
    return parse_study(text.replace(old, new, 1), folder=folder)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('treatment = "dose"\n', "", "data.mediators needs data.treatment"),
        ('["stress"]', "[]", "data.mediators must name at least one column"),
        ('mediators = ["stress"]\n', "", "data.at needs data.mediators"),
        ("[0.0, 1.0]", "[0.0]", "data.at must be a list of two different values of the treatment, got "),
        ("[0.0, 1.0]", "[1, 1.0]", "data.at must be a list of two different values"),
        ("[0.0, 1.0]", "[[0.0], [1.0]]", "data.at must be a list of two different values"),
        ('["stress"]', '["stres"]', "data.mediators: there is no column 'stres' .*did you mean 'stress'"),
    ],
)
def test_keys_that_are_refused(folder, old, new, message):
    with pytest.raises(StudyError, match=message):
        read_data(read(folder, old, new).data)


@pytest.mark.slow_variants(
    '["stress"]-["age"]-graph0-\\\\[data\\\\]: `mediators` must be variables on the causal paths from \'dose\''
)
@pytest.mark.parametrize(
    ("old", "new", "graph", "message"),
    [
        ('["stress"]', '["age"]', GRAPH, r"\[data\]: `mediators` must be variables on the causal paths from 'dose'"),
        ('["stress"]', '["visits"]', GRAPH, "`mediators` must be variables on the causal paths .* got .'visits'"),
        ('["stress"]', '["dose"]', GRAPH, "`mediators` must be variables on the causal paths .* got .'dose'"),
        ('["stress"]', '["arm"]', GRAPH, "'arm'"),  # which is not in the graph
        (
            '["stress"]',
            '["mood"]',
            TEXT,
            "`mediators` must be a column of numbers",
        ),
        ("at = [0.0, 1.0]\n", "", GRAPH, "`at` must hold the two values of 'dose' to compare, which has 80 different"),
        ("[0.0, 1.0]", '["low", "high"]', GRAPH, r"\[data\]: "),
        # A hidden cause of mediator and target leaves the total effect identified, but not its parts.
        ("", "", f"{GRAPH}; h [latent=true]; h -> stress; h -> sleep", "no regression gives the law of 'stress'"),
        ("", "", f"{GRAPH}; dose -> arm; arm -> stress; arm -> sleep", "'arm' is a recanting witness"),
    ],
)
def test_questions_that_have_no_answer_are_refused_before_a_fit(folder, old, new, graph, message):
    plan = make_plan(read(folder, old, new, graph), progress=False)
    with pytest.raises(StudyError, match=message):
        plan.mediation()


def test_a_model_of_a_package_without_mediation_is_refused(folder, monkeypatch):
    monkeypatch.setattr(kpp_models, "mediation", None)
    plan = make_plan(read(folder), progress=False)
    with pytest.raises(StudyError, match="a package with a function `mediation`.*got GPRegression of kpp_models"):
        plan.mediation()


def test_the_columns_are_the_target_its_causes_and_the_mediators(folder):
    data = read_data(read(folder).data)
    assert data.units.schema.feature_names == ("dose", "age") and data.treatment == "dose"  # as without mediators
    pd.testing.assert_frame_equal(data.mediation, people()[["age", "dose", "stress", "sleep"]])
    assert read_data(read(folder, 'mediators = ["stress"]\nat = [0.0, 1.0]\n').data).mediation is None


def test_a_target_of_two_classes_is_a_column_of_booleans(folder):
    table = people()
    table.assign(sleep=np.where(table["sleep"] > 7.0, "long", "short")).to_csv(folder / "labels.csv", index=False)
    found = read_data(read(folder, "people.csv", "labels.csv").data).mediation["sleep"]
    assert found.dtype == bool and (found == (table["sleep"] <= 7.0)).all()


def test_rows_that_lack_a_mediator_are_missing(folder):
    table = people()
    table.assign(stress=table["stress"].where(table.index > 1)).to_csv(folder / "gaps.csv", index=False)
    with pytest.raises(StudyError, match="missing values .'stress': 2"):
        read_data(read(folder, "people.csv", "gaps.csv").data)
    data = read_data(read(folder, "people.csv", 'gaps.csv"\nmissing = "drop').data)
    assert len(data.mediation) == 78


def fake(total=1.2):
    """Draws of effects whose intervals are of width 0.9 around a total effect, of which 0.4 is direct."""
    spread = np.linspace(-0.5, 0.5, 101)[None]
    draws = {"total": total + spread, "natural_direct": 0.4 + spread, "natural_indirect": 0.8 + spread}
    draws["proportion_mediated"] = (total - 0.4) / total + spread
    found = {name: (("chain", "draw"), values) for name, values in draws.items()}
    edges = (("chain", "draw", "edge"), np.stack([draws["natural_indirect"]], axis=-1))
    attrs = {"treatment_name": "dose", "at": ["0.0", "1.0"], "mediators": ["stress"], "regressions": ["a given b", "c"]}
    dataset = xr.Dataset(found | {"path_specific": edges}, {"edge": ["dose -> stress"]}, attrs)
    return MediationEffects(dataset)


@pytest.mark.slow
def test_what_is_asked_and_what_is_reported(folder, tmp_path, monkeypatch):
    asked = {}

    def mediation(rng_key, data, graph, **options):
        asked.update(options, graph=graph, columns=list(data))
        return fake()

    monkeypatch.setattr(kpp_models, "mediation", mediation)
    results = run_study(read(folder), tmp_path / "results", progress=False)
    inference = asked.pop("inference")
    assert isinstance(inference, kpp.MAP) and not inference.progress
    assert asked == {
        "graph": f"digraph {{ {GRAPH} }}",
        "columns": ["age", "dose", "stress", "sleep"],
        "treatment": "dose",
        "mediators": ("stress",),
        "outcome": "sleep",
        "at": (0.0, 1.0),
    }
    table = pd.read_csv(results / "mediation.csv", index_col="effect")
    assert list(table.columns) == ["mean", "sd", "lower", "upper"]
    np.testing.assert_allclose(table.loc["natural_indirect", ["mean", "lower", "upper"]], [0.8, 0.35, 1.25])
    assert (results / "effect.csv").exists()
    report = (results / "report.html").read_text(encoding="utf-8")
    assert (
        "From 0 to 1, dose changes the mean of sleep by +1.2 (90% interval 0.75 to 1.65) in total. With stress as at "
        "0, it changes by +0.4 (90% interval \u22120.05 to 0.85): the natural direct effect. With only stress as at 1, "
        "it changes by +0.8 (90% interval 0.35 to 1.25): the natural indirect effect. The proportion mediated is 0.667 "
        "(90% interval 0.217 to 1.12). These numbers come from regressions of their own (a given b; c), and assume "
        "that the noise of these variables is independent."
    ) in report
    check_output(results, overwrite=True)  # its files may be replaced


def test_no_proportion_is_shown_if_the_total_effect_may_be_zero():
    assert "The proportion mediated is not shown, because" in sentences.mediation(fake(total=0.3), "sleep")


@pytest.mark.slow
def test_the_effects_are_those_of_kpp_models_and_products_of_coefficients(folder, tmp_path):
    """With another key and 50 draws of hyperparameters, means differ by 0.2 standard deviations; two are allowed.

    Standard deviations differ by 14 percent; four of these are allowed.

    Without interactions the indirect effect is the product of two coefficients of least squares. The bound for the
    prior is one standard deviation.
    """
    config = read(folder, 'name = "MAP"', 'name = "Laplace"\nnum_samples = 50')
    results = run_study(config, tmp_path / "results", progress=False)
    found = pd.read_csv(results / "mediation.csv", index_col="effect")
    table = people()[["age", "dose", "stress", "sleep"]]
    expected = kpp_models.mediation(
        jax.random.key(7),
        table,
        config.data.further.graph,
        treatment="dose",
        mediators="stress",
        outcome="sleep",
        at=[0.0, 1.0],
        inference=kpp.Laplace(num_samples=50, progress=False),
    ).summary()
    assert list(found.index) == list(expected.index)
    assert (abs(found["mean"] - expected["mean"]) < 0.4 * expected["sd"]).all()
    np.testing.assert_allclose(found["sd"], expected["sd"], rtol=4 / np.sqrt(50))

    def slopes(outcome, *causes):
        design = np.column_stack([np.ones(len(table)), table[[*causes]]])
        return np.linalg.lstsq(design, table[outcome], rcond=None)[0][1:]

    direct, of_stress, _ = slopes("sleep", "dose", "stress", "age")
    indirect = slopes("stress", "dose", "age")[0] * of_stress
    for name, value in {"natural_direct": direct, "natural_indirect": indirect, "total": direct + indirect}.items():
        assert abs(found.loc[name, "mean"] - value) < found.loc[name, "sd"]
    np.testing.assert_allclose(
        found.loc["natural_direct", "mean"] + found.loc["total_indirect", "mean"], found.loc["total", "mean"]
    )


@pytest.mark.nightly
def test_the_effects_on_a_label_are_differences_of_probabilities(folder, tmp_path):
    table = people()
    labels = np.where(table["sleep"] > 7.0, "long", "short")
    table.assign(sleep=labels, dose=table["dose"] > 0.0).to_csv(folder / "short.csv", index=False)
    text = STUDY.replace("GRAPH", GRAPH).replace("people.csv", "short.csv").replace("at = [0.0, 1.0]\n", "")
    text = text.replace('"GPRegression"\nnoise_variance = 0.1', '"GPClassification"')
    text = text.replace('name = "MAP"', 'name = "Laplace"\nnum_samples = 30\nnum_restarts = 0')
    results = run_study(parse_study(text, folder=folder), tmp_path / "results", progress=False)
    found = pd.read_csv(results / "mediation.csv", index_col="effect").drop(index="proportion_mediated")
    assert found[["lower", "upper"]].abs().max(axis=None) <= 1.0
    assert found.loc["natural_indirect", "upper"] < 0.0  # less stress, so that short sleep is rarer
    report = (results / "report.html").read_text(encoding="utf-8")
    assert "From 0 to 1, dose changes the mean of sleep = short by" in report
