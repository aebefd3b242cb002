"""GPEC and the naive process from end to end: what they explain, where they are unsure, and what they say of it."""

from __future__ import annotations

from typing import ClassVar

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.special
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import kpp
from kpp.explanations import Explanation
from kpp.kernels import RBF
from kpp_gpec import (
    GPEC,
    BisectionSampler,
    BoundarySample,
    ExplanationProcess,
    FittedGPEC,
    NaiveGP,
    WeightedExponentialGeodesic,
)

KEY = jax.random.key(0)
SAMPLER = BisectionSampler(max_points=60)
GIVEN = {"decay": 1.0, "concentration": 2.0, "lengthscale": 1.0, "variance": 0.5}


def probability(x):
    """A classifier whose boundary is the circle of radius 3."""
    x = np.asarray(x)
    return scipy.special.expit(9.0 - (x**2).sum(axis=1))


def two_classes(x):
    inside = probability(x)
    return np.stack([1.0 - inside, inside], axis=1)


@pytest.fixture(scope="module")
def background():
    return np.random.default_rng(0).normal(size=(30, 2)) * [3.0, 2.0] + [0.5, 0.0]


@pytest.fixture(scope="module")
def explanation(background):
    """Contributions of squares, with errors."""
    return explain_squares(background)


def explain_squares(x, error=0.1):
    values = -(x**2) / 10.0
    return Explanation.create(values, 0.3, probability(x), x, standard_errors=np.full(x.shape, error))


@pytest.fixture(scope="module")
def fitted(background, explanation):
    gpec = GPEC("kernel-shap", background, boundary=SAMPLER, **GIVEN)
    return gpec.fit(probability, explanation=explanation, rng_key=KEY)


@pytest.mark.slow
def test_the_uncertainty_is_that_of_the_process_in_standard_units(fitted, background, explanation):
    """Put together from the kernel's parts, on the boundary sample that was found."""
    radii = np.linalg.norm(np.asarray(fitted.boundary.points), axis=1)
    np.testing.assert_allclose(radii, 3.0, atol=1e-5)
    mean, deviation = background.mean(axis=0), background.std(axis=0)
    output = fitted.outputs[0]
    samples = (np.asarray(fitted.boundary.points) - mean) / deviation
    weg = WeightedExponentialGeodesic(samples, output.geodesic.distances, 1.0, 2.0).precompute()
    process = ExplanationProcess.condition(
        weg * RBF(1.0), (background - mean) / deviation, explanation.values.values, np.full((30, 2), 0.01), [0.5, 0.5]
    )
    x = np.random.default_rng(1).normal(size=(4, 2))
    law, found = process.predict((x - mean) / deviation), fitted.explain(x)
    np.testing.assert_allclose(found.values, law.mean, rtol=1e-8)
    np.testing.assert_allclose(found.variance, law.variance, rtol=1e-8)
    np.testing.assert_allclose(found.variance_parts.sel(part="boundary"), law.noiseless_variance, rtol=1e-6)
    np.testing.assert_allclose(found.variance_parts.sum("part"), found.variance, rtol=1e-12)
    np.testing.assert_allclose(found.predictions, probability(x))
    assert float(found.base_values) == pytest.approx(0.3)
    assert found.attrs["noise"] == "standard errors" and found.attrs["hyperparameters"]["method"] == "given"


@pytest.mark.slow
def test_a_boundary_of_points_alone_is_used_like_a_sample(fitted, background, explanation):
    known = BoundarySample.from_points(np.asarray(fitted.boundary.points))
    gpec = GPEC("kernel-shap", background, boundary=SAMPLER, **GIVEN)
    given = gpec.fit(probability, explanation=explanation, boundary=known)
    assert known.found
    assert known.status == f"{known.num_points} given points"
    np.testing.assert_array_equal(given.explain(background).variance, fitted.explain(background).variance)


@pytest.mark.slow
def test_far_from_everything_nothing_is_certain(fitted):
    far = fitted.explain(np.array([[1e4, 0.0], [0.0, -1e7], [-1e5, 1e4], [1e6, 1e6]]))
    np.testing.assert_allclose(far.variance, 0.5, rtol=1e-9)
    np.testing.assert_allclose(far.values, 0.0, atol=1e-12)
    alone = fitted.with_hyperparameters(lengthscale=None).explain(np.tile([[1e4, 0.0]], (4, 1)))
    # The WEG kernel alone sees a far point as the boundary sample nearest to it.
    assert (alone.variance.values < 0.4).all()


@pytest.mark.slow
def test_noise_of_the_explainer_is_the_approximation_part(background):
    x = np.random.default_rng(2).normal(size=(4, 2))
    parts = []
    for error in (0.0, 0.1, 0.3):
        gpec = GPEC("kernel-shap", background, boundary=SAMPLER, **GIVEN)
        fitted = gpec.fit(probability, explanation=explain_squares(background, error), rng_key=KEY)
        parts.append(fitted.explain(x).variance_parts)
    boundary = [part.sel(part="boundary").values for part in parts]
    approximation = [part.sel(part="approximation").values for part in parts]
    np.testing.assert_allclose(boundary[1], boundary[0], rtol=1e-9)
    np.testing.assert_allclose(boundary[2], boundary[0], rtol=1e-9)
    assert approximation[0].max() < 1e-12
    assert (approximation[1] > 0).all() and (approximation[2] > approximation[1]).all()


@pytest.mark.slow
def test_the_rule_is_in_standard_units_of_the_features(background, explanation):
    found = GPEC("kernel-shap", background, boundary=SAMPLER).fit(probability, explanation=explanation, rng_key=KEY)
    two = {"decay": 3.0, "concentration": 30.0, "lengthscale": 4.0}  # for two features
    assert background.shape[1] == 2
    assert {name: found.hyperparameters[name] for name in two} == pytest.approx(two)
    assert found.hyperparameters["method"] == "heuristic"
    best = found.hyperparameters["objective"]
    for factor in (0.9, 1.1):
        variance = factor * np.asarray(found.hyperparameters["variance"])
        other = found.with_hyperparameters(variance=variance)
        assert float(other.outputs[0].process.log_evidence().sum()) < best


@pytest.mark.slow
@pytest.mark.parametrize("selection", ["evidence", pytest.param("cross-validation", marks=pytest.mark.slow)])
def test_hyperparameters_are_chosen_and_reported(background, explanation, selection):
    gpec = GPEC("kernel-shap", background, boundary=SAMPLER, selection=selection)
    fitted = gpec.fit(probability, explanation=explanation, rng_key=KEY)
    found = fitted.hyperparameters
    assert found["method"] == selection and len(found["variance"]) == 2
    assert fitted.explain(background[:4]).attrs["hyperparameters"] == found

    def score(one):
        process = one.outputs[0].process
        if selection == "evidence":
            return float(process.log_evidence().sum())
        mean, variance = (np.asarray(array) for array in process.leave_one_out())
        errors = np.asarray(process.values) - mean
        return float(-0.5 * (errors**2 / variance + np.log(2 * np.pi * variance)).sum())

    assert score(fitted) == pytest.approx(found["objective"], rel=1e-6)
    # It is a maximum: in no direction is there a better value, but where the range that was searched ends.
    for name in ("decay", "concentration", "lengthscale"):
        for factor in (0.9, 1.1) if name not in found["at_bounds"] else ():
            changed = fitted.with_hyperparameters(**{name: found[name] * factor})
            assert score(changed) <= found["objective"] + 1e-3


@pytest.mark.slow
def test_a_model_that_predicts_one_class_has_the_rbf_kernel_alone(background, explanation):
    gpec = GPEC("kernel-shap", background, boundary=SAMPLER, rbf=False, decay=1.0, concentration=1.0)
    with pytest.warns(UserWarning, match="no boundary found.*RBF factor alone"):
        fitted = gpec.fit(lambda x: np.full(len(x), 0.9), explanation=explanation, rng_key=KEY)
    found = fitted.explain(background[:3])
    assert np.isfinite(found.variance).all() and (found.variance > 0).all()
    assert found.attrs["boundary"]["kernel"] == "RBF" and found.attrs["boundary"]["num_points"] == 0
    assert found.attrs["hyperparameters"]["decay"] is None
    naive = NaiveGP("kernel-shap", background).fit(probability, explanation=explanation)
    np.testing.assert_allclose(found.variance, naive.explain(background[:3]).variance, rtol=1e-6)


@pytest.mark.slow
def test_each_of_several_outputs_has_its_own_process(background):
    names = ["out", "in"]
    values = np.stack([background**2, -(background**2)], axis=2) / 10.0
    explanation = Explanation.create(values, [0.7, 0.3], two_classes(background), background, output_names=names)
    gpec = GPEC("kernel-shap", background, boundary=SAMPLER, noise=0.01, **GIVEN)
    fitted = gpec.fit(two_classes, explanation=explanation, rng_key=KEY)
    x = background[:3] + 0.1
    found = fitted.explain(x)
    assert found.values.dims == ("instance", "feature", "output") and found.output_names == ("out", "in")
    # Two classes share a boundary, and here noise and hyperparameters, too.
    assert fitted.outputs[0].boundary is fitted.outputs[1].boundary
    np.testing.assert_allclose(found.values[..., 0], -found.values[..., 1], rtol=1e-9)
    np.testing.assert_allclose(found.predictions, two_classes(x))
    np.testing.assert_allclose(found.base_values, [0.7, 0.3])
    assert set(found.attrs["hyperparameters"]) == set(names)
    with pytest.raises(ValueError, match="2 outputs, each with a boundary"):
        _ = fitted.boundary
    one = GPEC("kernel-shap", background, boundary=SAMPLER, noise=0.01, output="in", **GIVEN)
    one = one.fit(two_classes, explanation=explanation, boundary=fitted.outputs[1].boundary).explain(x)
    np.testing.assert_allclose(one.values, found.values[..., 1], rtol=1e-9)
    np.testing.assert_allclose(one.variance, found.variance[..., 1], rtol=1e-9)
    np.testing.assert_allclose(one.predictions, found.predictions[:, 1])


def three_classes(x):
    scores = np.stack([x[:, 0], -x[:, 0] + x[:, 1], -2.0 * x[:, 1]], axis=1)
    return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)


@pytest.mark.slow
def test_three_classes_have_three_boundaries(background):
    explanation = Explanation.create(np.ones((30, 2, 3)), 0.0, three_classes(background), background)
    gpec = GPEC("kernel-shap", background, boundary=SAMPLER, noise=0.01, **GIVEN)
    fitted = gpec.fit(three_classes, explanation=explanation, rng_key=KEY)
    for number, output in enumerate(fitted.outputs):
        points = np.asarray(output.boundary.points)
        scores = np.sort(three_classes(points), axis=1)
        own = three_classes(points)[:, number]
        np.testing.assert_allclose(scores[:, -1], scores[:, -2], atol=1e-5)
        np.testing.assert_allclose(own, scores[:, -1], atol=1e-5)


@pytest.mark.slow
def test_repeats_estimate_the_noise_of_their_mean(background):
    """The explainer's errors have standard deviation 0.2; 8 repeats leave a variance of 0.04 / 8."""
    gpec = GPEC(Noisy(), background, boundary=SAMPLER, noise="repeats", num_repeats=8, **GIVEN)
    fitted = gpec.fit(probability, rng_key=KEY)
    noise = np.asarray(fitted.outputs[0].process.noise)
    # 60 estimates with 7 degrees of freedom each: their mean is within 4 sqrt(2 / 420) of the truth, relative.
    assert noise.mean() == pytest.approx(0.04 / 8, rel=4 * np.sqrt(2 / 420))
    errors = np.asarray(fitted.outputs[0].process.values) + background**2 / 10
    assert errors.var() == pytest.approx(0.04 / 8, rel=4 * np.sqrt(2 / 60))
    assert fitted.explain(background[:4]).attrs["noise"] == "8 repeats"
    with pytest.raises(ValueError, match="no `explanation` can be given"):
        gpec.fit(probability, explanation=explain_squares(background), rng_key=KEY)
    with pytest.raises(TypeError, match="`rng_key` must be a single JAX random key"):
        gpec.fit(probability)


class Noisy(kpp.AbstractExplainer):
    requires: ClassVar = "callable"
    additive: ClassVar = False

    def explain(self, predictor, x, *, rng_key=None):
        x = np.asarray(x)
        values = -(x**2) / 10 + 0.2 * np.asarray(jax.random.normal(rng_key, x.shape))
        return Explanation.create(values, 0.0, predictor(x), x, attrs={"explainer": "noisy"})


@pytest.mark.slow
def test_adding_explanations_is_fitting_to_all(fitted, background):
    more = np.random.default_rng(3).normal(size=(4, 2))
    added = fitted.add(explain_squares(more))
    together = np.concatenate([background, more])
    output = fitted.outputs[0]
    z = (together - background.mean(axis=0)) / background.std(axis=0)
    values = -(together**2) / 10
    process = ExplanationProcess.condition(output.process.kernel, z, values, np.full((34, 2), 0.01), [0.5, 0.5])
    law = process.predict((more - background.mean(axis=0)) / background.std(axis=0))
    found = added.explain(more)
    np.testing.assert_allclose(found.values, law.mean, rtol=1e-9)
    np.testing.assert_allclose(found.variance, law.variance, rtol=1e-9)
    assert (found.variance.values < fitted.explain(more).variance.values).all()
    assert added.x.shape == (34, 2)


@pytest.mark.slow
def test_assessing_keeps_the_explainers_own_values(fitted):
    x = np.random.default_rng(4).normal(size=(3, 2))
    own = explain_squares(x, error=0.2)
    assessed, predicted = fitted.assess(own), fitted.explain(x)
    np.testing.assert_array_equal(assessed.values, own.values)
    np.testing.assert_allclose(assessed.base_values, own.base_values)
    np.testing.assert_allclose(assessed.variance, predicted.variance + 0.04, rtol=1e-12)
    same = assessed.variance_parts.sel(part="boundary"), predicted.variance_parts.sel(part="boundary")
    np.testing.assert_array_equal(*same)


@pytest.mark.slow
def test_explanations_of_something_else_are_refused(fitted, background):
    other = Explanation.create(background, 0.0, background.sum(axis=1), background, feature_names=["a", "b"])
    with pytest.raises(ValueError, match="`explanation` must have the features"):
        fitted.add(other)
    two = Explanation.create(np.ones((30, 2, 2)), 0.0, two_classes(background), background)
    with pytest.raises(ValueError, match="must have 1 outputs, got 2"):
        fitted.add(two)
    with pytest.raises(ValueError, match="same number of rows"):
        fitted.add(explain_squares(background), background[:3])
    with pytest.raises(TypeError, match="unknown hyperparameters"):
        fitted.with_hyperparameters(rho=1.0)


@pytest.mark.nightly_variants("thinned")
@pytest.mark.slow_variants("one output", "several outputs")
@pytest.mark.parametrize(
    "kind",
    [
        "one output",
        "several outputs",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("thinned", "naive with groups")),
    ],
)
def test_a_file_gives_the_same_process_again(kind, background, explanation, fitted, tmp_path):
    if kind == "several outputs":
        values = np.stack([background**2, -(background**2)], axis=2)
        several = Explanation.create(values, 0.0, two_classes(background), background, output_names=["a", "b"])
        gpec = GPEC("kernel-shap", background, boundary=SAMPLER, noise=0.01, **GIVEN)
        one = gpec.fit(two_classes, explanation=several, rng_key=KEY)
    elif kind == "thinned":
        gpec = GPEC("kernel-shap", background, boundary=SAMPLER, max_landmarks=20, **GIVEN)
        one = gpec.fit(probability, explanation=explanation, rng_key=KEY)
        assert one.outputs[0].geodesic.distances.shape == (20, 20)
    elif kind == "naive with groups":
        blank, groups = np.full((30, 1), np.nan), {"b": ["x0", "x1"]}
        columns = {"feature_names": ["b"], "groups": groups}
        joined = Explanation.create(background[:, :1], 0.0, background[:, 0], blank, **columns)
        naive = NaiveGP("kernel-shap", background, lengthscale=[1.0, 2.0], variance=1.0, noise=0.1)
        one = naive.fit(probability, explanation=joined)
    else:
        one = fitted
    one.save(tmp_path / "gpec.nc")
    read = FittedGPEC.load(tmp_path / "gpec.nc", one.predictor)
    x = background[:3] + 0.2
    assert read.explain(x).dataset.identical(one.explain(x).dataset)
    assert read.hyperparameters == one.hyperparameters and [p.name for p in tmp_path.iterdir()] == ["gpec.nc"]
    alone = FittedGPEC.load(tmp_path / "gpec.nc").explain(x)
    assert alone.attrs["predictions"] == "base value plus contributions"
    assert float(alone.additivity_error().max()) < 1e-12


def test_other_files_are_refused(explanation, tmp_path):
    explanation.save(tmp_path / "e.nc")
    with pytest.raises(ValueError, match="must be a saved GPEC"):
        FittedGPEC.load(tmp_path / "e.nc")
    (tmp_path / "text.nc").write_text("no")
    with pytest.raises(ValueError, match="not a netCDF file"):
        FittedGPEC.load(tmp_path / "text.nc")
    with pytest.raises(FileNotFoundError):
        FittedGPEC.load(tmp_path / "none.nc")


@pytest.mark.slow
def test_by_name_with_columns(background):
    """The explainer by its name, its own background filled in, the columns of a data frame in the explanation."""
    kernel = RBF(2.0)
    function = kpp.RKHSFunction(kernel, background[:5], np.array([1.0, -1.0, 2.0, 0.5, -0.7]))
    x = pd.DataFrame(background[:3] + 0.1, columns=["age", "dose"])
    options = {"base_explainer": "rkhs-shap", "background": background, "margin": "level", "boundary": SAMPLER}
    found = kpp.explain(function, x, explainer="gpec", rng_key=KEY, **options, **GIVEN)
    assert found.feature_names == ("age", "dose") and found.attrs["explained_by"] == "rkhs-shap"
    np.testing.assert_allclose(found.predictions, function(x.to_numpy()), rtol=1e-9)


@pytest.mark.slow
def test_text_and_groups_of_columns():
    """A pipeline fitted on a data frame with text; a base explainer with a group of columns."""
    rng = np.random.default_rng(5)
    table = pd.DataFrame({"age": rng.normal(50, 10, 30), "job": rng.choice(["a", "b"], 30)})
    labels = (table.age / 10 - 5 + (table.job == "b") > 0).astype(int)
    encode = make_column_transformer((OneHotEncoder(), ["job"]), remainder="passthrough")
    model = make_pipeline(encode, LogisticRegression()).fit(table, labels)
    options = {"base_explainer": "kernel-shap", "background": table, "boundary": SAMPLER, "output": "1"}
    found = kpp.explain(model, table[:3], explainer="gpec", rng_key=KEY, **options, **GIVEN)
    assert found.feature_names == ("age", "job") and found.schema.levels == {"job": ("a", "b")}
    np.testing.assert_allclose(found.predictions, model.predict_proba(table[:3])[:, 1], rtol=1e-12)
    x = rng.normal(size=(30, 3))
    grouped = kpp.registry.get("explainers", "kernel-shap")(x, groups={"pair": [0, 2]}, progress=False)
    fitted = GPEC(grouped, x, boundary=SAMPLER, **GIVEN).fit(lambda rows: probability(rows[:, :2] * 2), rng_key=KEY)
    found = fitted.explain(x[:3])
    assert found.feature_names == ("pair", "x1") and found.attrs["groups"] == {"pair": ["x0", "x2"]}
    with pytest.raises(ValueError, match="`x` must be given where features stand for several columns"):
        fitted.add(found)
    assert len(fitted.add(found, x[:3]).x) == 33


@pytest.mark.slow
def test_published_settings(background, explanation):
    gpec = GPEC.published("kernel-shap", background, boundary=SAMPLER)
    fitted = gpec.fit(probability, explanation=explanation, rng_key=KEY)
    points = np.asarray(fitted.boundary.points)
    weg = WeightedExponentialGeodesic(points, fitted.outputs[0].geodesic.distances, 1.0, 0.1).precompute()
    noise = np.maximum(explanation.standard_errors.values**2, 1e-4)
    process = ExplanationProcess.condition(weg, background, explanation.values.values, noise, np.ones(2))
    x = background[:4] + 0.3
    np.testing.assert_allclose(fitted.explain(x).variance, process.predict(x).variance, rtol=1e-7)
    assert GPEC.published("lime", background, concentration=0.5).concentration == 0.5


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"margin": "edge"}, ValueError, "`margin` must be one of"),
        ({"selection": "guess"}, ValueError, "`selection` must be one of"),
        ({"noise": "other"}, ValueError, "`noise` must be a number or one of"),
        ({"noise": -1.0}, ValueError, "`noise` must be at least 0"),
        ({"noise": "repeats", "num_repeats": 1}, ValueError, "`num_repeats` must be at least 2"),
        ({"min_noise_variance": -1.0}, ValueError, "`min_noise_variance`"),
        ({"decay": -1.0}, ValueError, "`decay` must be at least 0"),
        ({"max_landmarks": 0}, ValueError, "`max_landmarks` must be at least 1"),
        ({"boundary": "bisection"}, TypeError, "`boundary` must be a boundary sampler"),
        ({"base_explainer": 3}, TypeError, "`base_explainer` must be a registered name or an explainer"),
        ({"background": np.ones(3)}, ValueError, "`background` must have shape"),
    ],
)
def test_bad_options_are_refused(change, error, match, background):
    with pytest.raises(error, match=match):
        GPEC(**{"base_explainer": "kernel-shap", "background": background, **change})


def test_bad_calls_are_refused(background, explanation):
    gpec = GPEC("kernel-shap", background, boundary=SAMPLER, **GIVEN)
    with pytest.raises(TypeError, match="`rng_key` must be a single JAX random key"):
        gpec.fit(probability, explanation=explanation)
    with pytest.raises(ValueError, match="same number of rows"):
        gpec.fit(probability, explanation=explanation[:4], rng_key=KEY)
    with pytest.raises(ValueError, match="2 outputs, but its explanation 1"):
        gpec.fit(two_classes, explanation=explanation, rng_key=KEY)
    with pytest.raises(ValueError, match="`boundary` must hold one sample per output"):
        gpec.fit(probability, explanation=explanation, boundary=[], rng_key=KEY)
    with pytest.raises(ValueError, match="points with 2 features, as the background, got 3"):
        gpec.fit(probability, explanation=explanation, boundary=BoundarySample.from_points(np.ones((4, 3))))
    with pytest.raises(ValueError, match="`output` 1 is asked for"):
        GPEC("kernel-shap", background, output=1).fit(probability, explanation=explanation, rng_key=KEY)
    with pytest.raises(TypeError, match="belong to its constructor"):
        GPEC(Noisy(), background, explainer_options={"n": 3})
