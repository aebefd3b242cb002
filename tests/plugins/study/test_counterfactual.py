"""Studies of what would have been, `counterfactual` beside `treatment`: refusals, values, and what is written."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest

from kpp.causal import CausalDAG
from kpp.gp import GaussianLikelihood
from kpp.kernels import RBF
from kpp_models import GPMechanism, StructuralModel
from kpp_study.report import sentences
from kpp_study.study.errors import StudyError
from kpp_study.study.plan import make_plan
from kpp_study.study.runner import run_study
from kpp_study.study.sections.config import parse_study

STUDY = """
[data]
kind = "graph"
path = "people.csv"
target = "sleep"
treatment = "dose"
counterfactual = 1.0
graph = "digraph { age -> dose; age -> sleep; dose -> sleep; arm -> sleep; sleep -> good; sleep -> count }"

[model]
name = "GPRegression"
noise_variance = 0.1

[model.kernel]
name = "RBF"
lengthscale = 2.0

[inference]
name = "MAP"

[explainer]
instances = 4
background = 5
"""


def people(seed=0, size=60):
    """A table in which a unit of the dose adds 1.2 hours of sleep to everybody."""
    rng = np.random.default_rng(seed)
    age, noise = rng.normal(size=size), rng.normal(size=(2, size))
    dose = 0.5 * age + noise[0]
    sleep = 7.0 + 1.2 * dose - 0.3 * age + 0.5 * noise[1]
    table = pd.DataFrame({"age": age, "dose": dose, "sleep": sleep})
    return table.assign(arm=np.where(noise[0] > 0.0, "new", "old"), count=sleep.round(), good=sleep > 7.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("counterfactual")
    people().to_csv(place / "people.csv", index=False)
    return place


def plan_of(folder, old="", new="", text=STUDY):
    assert old in text
    return make_plan(parse_study(text.replace(old, new, 1), folder=folder), progress=False)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('treatment = "dose"\n', "", "data.counterfactual needs data.treatment"),
        ("= 1.0", "= [1.0]", "data.counterfactual must be a value of the treatment"),
        ("= 1.0", '= "high"', "data.counterfactual: "),
        ("= 1.0", "= inf", "data.counterfactual: "),
        ("= 1.0", "= nan", "data.counterfactual: "),
        ('target = "sleep"', 'target = "good"', "Gaussian or Student-t noise"),
    ],
)
def test_what_has_no_answer_is_refused_before_a_fit(folder, old, new, message):
    with pytest.raises(StudyError, match=message):
        plan_of(folder, old, new)


@pytest.fixture(scope="module")
def answers(folder):
    plan = plan_of(folder)
    return plan, plan.counterfactuals(plan.fit(), plan.altered)


def test_values_and_intervals_are_those_of_textbook_regression(answers):
    plan, found = answers
    table = people()
    x, y = (table[names].to_numpy() for names in (["dose", "age"], "sleep"))
    scaled, target = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    changed = x[plan.rows] * [0.0, 1.0] + [1.0, 0.0]
    ends = np.concatenate([(changed - x.mean(0)) / x.std(0), scaled[plan.rows]])

    def gram(a, b):
        return np.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / 8.0)

    inverse = np.linalg.inv(gram(scaled, scaled) + 0.1 * np.eye(60))
    sides = np.hstack([np.eye(4), -np.eye(4)])
    mean = sides @ gram(ends, scaled) @ inverse @ target
    covariance = gram(ends, ends) - gram(ends, scaled) @ inverse @ gram(scaled, ends)
    sd = np.sqrt(np.diag(sides @ covariance @ sides.T))
    assert found.index.tolist() == plan.rows.tolist()
    np.testing.assert_allclose(found["observed"], y[plan.rows])
    # Rounding errors, because the matrices have condition numbers below 1e4.
    np.testing.assert_allclose(found["mean"], y[plan.rows] + y.std() * mean, rtol=1e-8)
    half = 1.6448536269514722 * y.std() * sd  # the quantile of 95 % of a standard normal variable
    np.testing.assert_allclose((found["upper"] - found["lower"]) / 2, half, rtol=1e-6)


@pytest.mark.slow
def test_a_structural_model_says_the_same(answers):
    """Abduction, action and prediction by `StructuralModel`, with 2,000 draws, and the same hyperparameters."""
    plan, found = answers
    table = people()[["age", "dose", "sleep"]]
    center, scale = table.mean(), table.std(ddof=0)
    graph = CausalDAG([("age", "dose"), ("age", "sleep"), ("dose", "sleep")])
    mechanism = GPMechanism(RBF(2.0), GaussianLikelihood(noise_variance=0.1))
    model = StructuralModel(graph, {"sleep": mechanism})
    columns = {name: ((table[name] - center[name]) / scale[name]).to_numpy() for name in table}
    units = {name: column[plan.rows] for name, column in columns.items()}
    laws = ("age.intercept", "age.likelihood.noise_variance", "dose.intercept", "dose.coefficients.age")
    posterior = {name: np.ones((1, 2000)) for name in (*laws, "dose.likelihood.noise_variance")}
    posterior["sleep.mean"] = np.zeros((1, 2000))
    value = (1.0 - center["dose"]) / scale["dose"]
    drawn = model.counterfactual(jax.random.key(0), posterior, columns, units, do={"dose": value})["sleep"]
    sleep = center["sleep"] + scale["sleep"] * drawn.values[0]
    sd = (found["upper"] - found["lower"]).to_numpy() / 2 / 1.6448536269514722
    # Four standard errors of a mean and of a standard deviation of 2,000 draws.
    assert np.all(abs(sleep.mean(0) - found["mean"]) < 4 * sd / np.sqrt(2000))
    np.testing.assert_allclose(sleep.std(0), sd, rtol=4 / np.sqrt(2 * 2000))


def test_a_category_is_changed_by_its_level(folder):
    of_arms = STUDY.replace("RBF", "Categorical").replace("lengthscale = 2.0", 'on = ["arm"]')
    arm = '"dose"\ncounterfactual = 1.0'
    plan = plan_of(folder, arm, '"arm"\ncounterfactual = "old"', of_arms)
    np.testing.assert_array_equal(plan.altered, np.ones((4, 1)))  # "old" is the second level
    with pytest.raises(StudyError, match="data.counterfactual: .*'none'"):
        plan_of(folder, arm, '"arm"\ncounterfactual = "none"', of_arms)


@pytest.mark.slow
def test_the_table_and_the_report_have_the_values(folder, answers):
    output = run_study(parse_study(STUDY, folder=folder), folder / "results", progress=False)
    written = pd.read_csv(output / "counterfactual.csv", index_col="row")
    pd.testing.assert_frame_equal(written, answers[1], check_index_type=False)
    changes = answers[1]["mean"] - answers[1]["observed"]
    report = (output / "report.html").read_text(encoding="utf-8")
    assert "If dose had been 1, sleep of the 4 explained rows would have changed by" in report
    assert f"{changes.max():.3g}"[:4] in report
    # The replacement is allowed: the file is one of a study.
    run_study(parse_study(STUDY, folder=folder), output, overwrite=True, progress=False)


@pytest.mark.parametrize(("value", "outside"), [(0.5, False), (-7.0, True), (9.0, True), ("old", False)])
def test_the_sentence_counts_clear_changes_and_says_what_is_outside_the_data(value, outside):
    table = pd.DataFrame({"observed": [1.0, 1.0, 1.0], "mean": [2.0, 0.0, 1.1]})
    table = table.assign(lower=[1.5, -1.0, 0.0], upper=[2.5, 0.5, 2.0])
    said = sentences.counterfactual(table, "dose", value, "sleep", np.array([1.0, 2.0, 0.0]))
    assert "For 2 of them the 90% interval of the change excludes 0" in said
    assert ("In the data dose is from 0 to 2: elsewhere the prior decides." in said) == outside
