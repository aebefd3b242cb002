"""A finished study: everything opens, adds up, is in the units of the table, and the report is self-contained."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import arviz as az
import numpy as np
import pandas as pd
import pytest

import kpp
from kpp.storage import arviz_data
from kpp_study import load_fit, parse_study, run_study
from kpp_study.study.output import FILES

HOSTILE = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def groups(finished):
    return arviz_data.groups(az.from_netcdf(finished.folder / "posterior.nc"))


@pytest.fixture(scope="module")
def explanation(finished):
    return kpp.Explanation.load(finished.folder / "explanation.nc")


@pytest.fixture(scope="module")
def report(finished):
    return (finished.folder / "report.html").read_text(encoding="utf-8")


class Page(HTMLParser):
    """Collects what a browser would act on: tags, identifiers, and every attribute that can fetch something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.images: list[dict] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append(tag)
        self.ids += [found["id"]] if "id" in found else []
        self.fetched += [found[name] for name in ("src", "href", "srcset", "action", "data", "poster") if name in found]
        self.images += [found] if tag == "img" else []
        assert not any(name.startswith("on") for name in found)

    def handle_data(self, data):
        self.text.append(data)


def test_the_folder_holds_the_four_files_and_the_command_says_where(finished):
    assert sorted(entry.name for entry in finished.folder.iterdir()) == sorted(FILES)
    assert [entry.name for entry in finished.folder.parent.iterdir()] == ["results"]
    assert str(finished.folder / "report.html") in finished.result.stdout


@pytest.mark.filterwarnings("ignore:Estimated shape parameter:UserWarning")
def test_arviz_opens_the_posterior_with_all_groups(groups):
    expected = {"posterior", "sample_stats", "log_likelihood", "posterior_predictive", "observed_data", "constant_data"}
    assert expected <= set(groups)
    assert dict(groups["posterior"].sizes) | {"chain": 2, "draw": 60} == dict(groups["posterior"].sizes)
    loo = arviz_data.loo_numbers(arviz_data.loo(arviz_data.from_groups(groups)))
    assert loo["pareto_k"].size == 30


def test_the_report_says_whether_priors_drive_the_result(report):
    expected = (
        "The strength of all priors together matters" if arviz_data.MAJOR else "is not measured: this needs ArviZ 1"
    )
    assert expected in " ".join(report.split())


def test_results_are_in_the_units_of_the_table(finished, groups, explanation):
    price = finished.frame["price & tax"].to_numpy()
    np.testing.assert_allclose(groups["observed_data"]["y"], price, rtol=1e-12)
    np.testing.assert_allclose(groups["constant_data"]["x"].sel(feature="area"), finished.frame["area"], rtol=1e-12)
    predictive = groups["posterior_predictive"]["y"].mean(("chain", "draw"))
    assert np.corrcoef(predictive, price)[0, 1] > 0.9  # the noise has a tenth of the spread of the prices
    assert abs(float(predictive.mean()) - price.mean()) < price.std() / 3
    # a density per unit of price is that per standard deviation of the price, divided by it
    constant = groups["constant_data"]
    np.testing.assert_allclose(float(constant["target_scale"]), price.std(), rtol=1e-12)
    np.testing.assert_allclose(float(constant["target_center"]), price.mean(), rtol=1e-12)
    np.testing.assert_allclose(
        explanation.data.sel(feature="area"), finished.frame["area"].iloc[[0, 7, 19]], rtol=1e-12
    )


def test_contributions_add_up_in_the_units_of_the_table(finished, explanation):
    predictions = explanation.predictions
    np.testing.assert_allclose(explanation.base_values + explanation.values.sum("feature"), predictions, rtol=1e-8)
    assert explanation.dataset.coords["instance"].values.tolist() == [0, 7, 19]
    price = finished.frame["price & tax"].to_numpy()
    error = np.abs(predictions.mean(("chain", "draw")).values - price[[0, 7, 19]])
    assert (error < price.std()).all()
    assert abs(float(explanation.base_values.mean()) - price.mean()) < price.std()


def test_a_category_is_one_feature_with_its_levels(explanation):
    assert explanation.feature_names == ("area", HOSTILE, "town")
    assert explanation.schema.levels == {"town": ("Bern", "Rome")}
    importance = abs(explanation.values).mean(("chain", "draw", "instance"))
    assert float(importance.sel(feature="town")) > float(importance.sel(feature=HOSTILE))


def test_thinning_is_even_and_recorded(explanation):
    assert explanation.dataset.sizes["draw"] == 10
    draws = explanation.dataset.coords["draw"].values
    assert draws[0] == 0
    assert draws[-1] == 59
    assert set(np.diff(draws)) <= {6, 7}
    assert explanation.attrs["max_draws"] == 20
    assert explanation.attrs["posterior_draws"] == 120


def test_how_it_was_made_is_recorded(finished, groups, explanation):
    assert explanation.attrs["seed"] == 3
    assert explanation.attrs["study"] == finished.study.read_text(encoding="utf-8")
    recorded = az.from_netcdf(finished.folder / "posterior.nc").attrs
    assert json.loads(recorded["kpp_data"])["schema"]["levels"] == {"town": ["Bern", "Rome"]}


def test_the_summary_has_a_row_for_every_parameter(finished):
    summary = pd.read_csv(finished.folder / "summary.csv", index_col="parameter")
    assert {"mean", "sd", "r_hat", "ess_bulk", "ess_tail"} <= set(summary.columns)
    scales = [f"kernel.kernels.0.kernel.lengthscale[{name}]" for name in ("area", HOSTILE)]
    assert sorted(summary.index) == sorted([*scales, "noise_variance"])
    assert np.isfinite(summary.to_numpy()).all()


def test_the_report_has_every_section(report):
    page = Page(report)
    sections = ["data", "model", "posterior", "convergence", "check", "loo", "explanation", "curves"]
    sections += ["instances", "made"]
    assert [name for name in page.ids if name in sections] == sections
    assert page.tags.count("h1") == 1
    assert page.tags.count("details") == 3
    words = " ".join(page.text)
    for said in ("R-hat", "ESS", "Divergent transitions", "Pareto k", "20 of 120", "price & tax", "A <small> study"):
        assert said in words
    for row in (0, 7, 19):
        assert f"Row {row}: predicted" in words


def test_the_report_names_both_intervals_of_a_prediction(report, groups):
    """That of the mean is below the mean; that of a new observation has its own column."""
    words = " ".join(" ".join(Page(report).text).split())
    low, high = groups["posterior_predictive"]["y"].sel(instance=7).quantile([0.05, 0.95]).values
    assert f"90% interval of a new observation {low:,.0f} to {high:,.0f}, observed" in words


def test_the_report_needs_no_network_and_has_one_script_of_its_own(report):
    page = Page(report)
    assert not {"link", "iframe", "object", "embed", "form"} & set(page.tags)
    assert page.tags.count("script") == 1
    assert not re.search(r"https?:", report)
    assert "url(" not in report
    assert all(target.startswith(("#", "data:image/")) for target in page.fetched)


def test_names_of_columns_are_escaped(report):
    assert HOSTILE not in report
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" in report


def test_every_image_says_what_it_shows(report):
    images = Page(report).images
    assert len(images) == 6  # target, hyperparameters, predictive check, Pareto k, beeswarm, curves
    assert all(re.search(r"\d.*\d", image["alt"]) for image in images)  # with numbers


@pytest.fixture(scope="module")
def single(tmp_path_factory, finished):
    """The same study with one best value of every hyperparameter and rows drawn by the seed, run twice."""
    text = finished.study.read_text(encoding="utf-8")
    start, end = text.index("[inference]"), text.index("[explainer]")
    text = text[:start] + '[inference]\nname = "MAP"\n' + text[end:].replace("[0, 7, 19]", "3")
    text += "[report]\nwaterfalls = 1\n[certificate]\ndata_sets = 2\n"
    config = parse_study(text, folder=finished.study.parent)
    folder = tmp_path_factory.mktemp("single")
    return [run_study(config, folder / name, progress=False) for name in ("first", "second")]


@pytest.mark.nightly
def test_the_same_seed_gives_the_same_numbers(single):
    first, second = (kpp.Explanation.load(folder / "explanation.nc") for folder in single)
    assert first.dataset.coords["instance"].values.tolist() == second.dataset.coords["instance"].values.tolist()
    np.testing.assert_array_equal(first.values, second.values)
    first, second = (pd.read_csv(folder / "certificate.csv", index_col=0) for folder in single)
    pd.testing.assert_frame_equal(first, second)
    assert {"values of the function", "new observations", "Shapley values", "rows left out"} < set(first.index)


@pytest.mark.nightly
def test_a_single_best_value_is_reported_as_such(single):
    page = Page((single[0] / "report.html").read_text(encoding="utf-8"))
    words = " ".join(" ".join(page.text).split())
    assert "one best value each" in words
    assert "it needs at least 100 posterior draws, and there are 1" in words
    assert "The intervals of this study held" in words
    assert "2 data sets were simulated from the posterior of this fit" in words
    assert page.tags.count("details") == 1
    assert pd.read_csv(single[0] / "summary.csv")["mean"].notna().all()


OPTIONS = """
value_function = "observational"
regularization = 0.01
method = "least-squares"
num_coalitions = 20
interactions = "SII"
covariance = "point"

[explainer.groups]
place = ["north", "east"]
"""


@pytest.mark.nightly
def test_an_explainer_s_options_are_keys_of_its_section(finished, tmp_path):
    rng = np.random.default_rng(1)
    places = {name: rng.normal(size=30) for name in ("north", "east", "floor")}
    finished.frame.rename(columns={HOSTILE: "age"}).assign(**places).to_csv(tmp_path / "rooms.csv", index=False)
    text = finished.study.read_text(encoding="utf-8")
    start, end = text.index("[model]"), text.index("[explainer]")
    text = (
        text[:start]
        + '[model]\nname = "GPRegression"\nnoise_variance = 0.1\n'
        + '[model.kernel]\nname = "Product"\nkernels = [{ name = "Categorical", on = ["town"] },'
        + ' { name = "RBF", on = ["area", "age", "north", "east", "floor"], lengthscale = 3.0 }]\n'
        + '[inference]\nname = "MAP"\n'
        + text[end:].replace('value_function = "interventional"', OPTIONS.partition("[")[0])
        + OPTIONS[OPTIONS.index("[") :]
        + "\n[report]\nwaterfalls = 1\n"
    )
    folder = run_study(parse_study(text, folder=tmp_path), tmp_path / "results", progress=False)
    explanation = kpp.Explanation.load(folder / "explanation.nc")
    assert explanation.feature_names == ("area", "age", "town", "place", "floor")
    recorded = {name: explanation.attrs[name] for name in ("value_function", "regularization", "method", "exact")}
    assert recorded == {
        "value_function": "observational",
        "regularization": 0.01,
        "method": "least-squares",
        "exact": False,
    }
    assert {"interactions", "covariance", "standard_errors"} <= set(explanation.dataset.data_vars)
    assert np.isnan(explanation.data.sel(feature="place")).all()
    np.testing.assert_allclose(explanation.data.sel(feature="floor"), places["floor"][[0, 7, 19]], rtol=1e-12)
    assert float(explanation.additivity_error().max()) < 1e-8 * float(explanation.predictions.max())
    page = " ".join(" ".join(Page((folder / "report.html").read_text(encoding="utf-8")).text).split())
    assert "observational value function, estimated from 20 coalitions" in page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inference", "scale", "labels"),
    [
        pytest.param('name = "Laplace"', "latent", (0, 1), marks=pytest.mark.nightly),
        pytest.param('name = "MAP"', "latent", ("cheap", "very dear"), marks=pytest.mark.nightly),
        ('name = "MAP"', "probability", ("cheap", "very dear")),
    ],
)
def test_a_classifier_is_explained_on_the_scale_of_the_study(frame, tmp_path, inference, scale, labels):
    label = frame["price & tax"] + 150 * np.random.default_rng(0).normal(size=30) > 1900
    frame = frame.drop(columns="price & tax").assign(dear=np.where(label, labels[1], labels[0]))
    frame.to_csv(tmp_path / "rooms.csv", index=False)
    config = parse_study(
        f"""
        data = {{ path = "rooms.csv", target = "dear", features = ["area", "town"] }}
        inference = {{ {inference} }}
        explainer = {{ instances = [0, 7], scale = "{scale}" }}
        [model]
        name = "GPClassification"
        [model.kernel]
        name = "Product"
        kernels = [
            {{ name = "RBF", on = ["area"], variance = 4.0, lengthscale = {{ prior = "LogNormal" }} }},
            {{ name = "Categorical", on = ["town"], correlation = 0.5 }},
        ]
        """,
        folder=tmp_path,
    )
    folder = run_study(config, tmp_path / "results", progress=False)
    explanation = kpp.Explanation.load(folder / "explanation.nc")
    assert float(explanation.additivity_error().max()) < 1e-8
    assert (explanation.base_values.dims == ("chain", "draw")) == explanation.has_draws
    words = " ".join(" ".join(Page((folder / "report.html").read_text(encoding="utf-8")).text).split())
    target = "dear" if labels == (0, 1) else "dear = very dear"
    for said in (f"predicted probabilities of {target}", "Labels right", "dear = "):
        assert said in words
    assert (0.0 <= explanation.predictions).all() or scale == "latent"
    assert (f"log-odds of {target}" in words) == (scale == "latent")
    predicted = load_fit(folder).predict(frame.iloc[[7]])["prediction"]
    if scale == "latent":  # the probability of the label is beside the log-odds
        assert f"probability {predicted.iloc[0]:.3f}, observed" in words
        assert explanation.attrs["link"] == "logit"  # from which a report of the explanation alone has probabilities
