"""Studies of the effect of a treatment, `kind = "graph"` with `treatment`: columns, refusals, and the report."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest

import kpp_models
from kpp_study.study.errors import StudyError
from kpp_study.study.reading.kinds import read_data
from kpp_study.study.runner import run_study
from kpp_study.study.sections.config import parse_study
from kpp_study.study.study_fit import load_fit

GRAPH = "digraph { age -> dose; age -> rate; dose -> rate; rate -> visits; smoker -> rate }"
STUDY = """
[data]
kind = "graph"
path = "patients.csv"
target = "rate"
treatment = "dose"
graph = "GRAPH"

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table of 60 patients: a higher dose for the old lowers the rate by 2 for each unit."""
    rng = np.random.default_rng(0)
    age = rng.normal(50.0, 10.0, 60)
    dose = 0.05 * age + rng.normal(size=60)
    rate = 0.3 * age - 2.0 * dose + rng.normal(0.0, 0.5, 60)
    table = pd.DataFrame({"age": age, "dose": dose, "rate": rate, "visits": rate + 1.0, "smoker": rng.random(60) < 0.5})
    place = tmp_path_factory.mktemp("treatments")
    table.assign(arm=np.where(dose > 2.5, "new", "old"), none=1.0).to_csv(place / "patients.csv", index=False)
    return place


def read(folder, graph=GRAPH, old="", new=""):
    """Read the study with a graph and one edit of its text."""
    text = STUDY.replace("GRAPH", graph)
    assert old in text
    return parse_study(text.replace(old, new, 1), folder=folder)


def test_the_graph_decides_what_to_adjust_for(folder):
    data = read_data(read(folder).data)
    assert data.units.schema.feature_names == ("dose", "age") and data.treatment == "dose"
    given = read(folder, old='treatment = "dose"', new='treatment = "dose"\nfeatures = ["dose", "smoker", "age"]')
    assert read_data(given.data).units.schema.feature_names == ("dose", "smoker", "age")


@pytest.mark.parametrize(
    ("graph", "old", "new", "message"),
    [
        (
            GRAPH,
            '"dose"',
            '"dosis"',
            "data.treatment: there is no column 'dosis' .*did you mean 'dose'",
        ),
        (GRAPH, '"dose"', '"arm"', "data.graph: .*'arm'"),
        (GRAPH, '"dose"', '"visits"', "data.graph: no directed path leads from 'visits' to 'rate'"),
        (GRAPH, '"dose"', '"dose"\nfeatures = ["age"]', "data.features must contain the treatment 'dose'"),
        (GRAPH, '"dose"', '"dose"\nfeatures = ["dose", "visits"]', "data.features does not fit data.graph"),
        (GRAPH, '"dose"', '"dose"\nunlabeled = "more.csv"', "data.unlabeled must be left out"),
        (
            f"{GRAPH[:-1]}; dose -> rate; h [latent=true]; h -> dose; h -> rate }}",
            "",
            "",
            "no columns of data.path adj",
        ),
        (
            "digraph { none -> rate }",
            '"dose"',
            '"none"',
            "data.treatment: the column 'none' has one value",
        ),
    ],
)
def test_what_is_refused(folder, graph, old, new, message):
    with pytest.raises(StudyError, match=message):
        read_data(read(folder, graph, old, new).data)


def test_a_model_without_a_law_of_its_function_is_refused(folder, tmp_path):
    config = read(folder, old='"GPRegression"\nnoise_variance = 0.1', new='"KernelRidge"\nregularization = 0.1')
    with pytest.raises(StudyError, match="data.treatment needs a model of a Gaussian process, got KernelRidge"):
        run_study(config, tmp_path / "results", progress=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the effect at the treatments")  # the least and the largest dose
def test_the_effect_is_that_of_causal_effect(folder, tmp_path):
    """`kpp_models.causal_effect` averages the same fit over the same rows, with 1000 draws: 4 standard errors.

    The true slope is -2. Without adjustment for age it is 1.5 / 1.25 - 2 = -0.8.
    """
    # Groups of the explanation change nothing.
    config = read(folder, old="background = 5", new='background = 5\ngroups = { all = ["dose", "age"] }')
    results = run_study(config, tmp_path / "results", progress=False)
    found = pd.read_csv(results / "effect.csv", index_col="dose")
    kept = load_fit(results)
    at = ((found.index.to_numpy() - kept.units.center[0]) / kept.units.scale[0]).tolist()
    effect = kpp_models.causal_effect(
        jax.random.key(0), kept.fit, GRAPH, treatment="dose", outcome="rate", at=at, bootstrap=False, num_draws=1000
    )
    draws = kept.units.target_center + kept.units.target_scale * effect.draws.to_numpy()[0]
    error = found["sd"] / np.sqrt(1000)
    assert (abs(draws.mean(axis=0) - found["mean"]) < 4 * error).all()
    np.testing.assert_allclose(draws.std(axis=0), found["sd"], rtol=4 / np.sqrt(2000))
    low, high = np.quantile(pd.read_csv(folder / "patients.csv")["dose"], [0.1, 0.9])
    mean = np.interp([low, high], found.index, found["mean"])
    assert -2.4 < np.diff(mean)[0] / (high - low) < -1.6
    report = (results / "report.html").read_text(encoding="utf-8")
    assert (
        "The curve of dose is its effect, as far as the causal graph is right: the mean of rate if dose were set to"
        in report
    )


@pytest.mark.nightly
def test_the_effect_on_a_label_is_a_probability(folder, tmp_path):
    table = pd.read_csv(folder / "patients.csv")
    high = np.where(table["rate"] > table["rate"].median(), "high", "low")
    table.assign(rate=high).to_csv(folder / "labels.csv", index=False)
    text = STUDY.replace("GRAPH", GRAPH).replace("patients.csv", "labels.csv")
    text = text.replace('"GPRegression"\nnoise_variance = 0.1', '"GPClassification"')
    results = run_study(parse_study(text, folder=folder), tmp_path / "results", progress=False)
    found = pd.read_csv(results / "effect.csv")["mean"]
    assert found.between(0.0, 1.0).all() and found.iloc[-1] > found.iloc[0]  # of "low", the second class
    assert "the mean of rate = low if dose were set" in (results / "report.html").read_text(encoding="utf-8")


@pytest.mark.nightly
def test_levels_are_compared_with_the_first(folder, tmp_path):
    graph = "digraph { age -> arm; age -> rate; arm -> rate }"
    kernel = 'name = "RBF"\nlengthscale = 2.0\n'
    product = (
        'name = "Product"\nkernels = [{ name = "Categorical", correlation = 0.5, on = ["arm"] }, '
        '{ name = "RBF", lengthscale = 2.0, on = ["age"] }]\n'
    )
    text = STUDY.replace("GRAPH", graph).replace('"dose"', '"arm"').replace(kernel, product)
    results = run_study(parse_study(text, folder=folder), tmp_path / "results", progress=False)
    found = pd.read_csv(results / "effect.csv", index_col="arm")
    assert list(found.index) == ["new", "old"]
    assert "It changes from new to old by +" in (results / "report.html").read_text(encoding="utf-8")
