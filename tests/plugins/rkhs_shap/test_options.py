"""Each option of the explainer does what `kpp.games` does, on the names of the table and in blocks."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import kpp
from kpp.games import (
    Baseline,
    Interventional,
    Observational,
    estimate_shapley,
    interaction_values,
    shapley_covariance,
    shapley_values,
    shapley_values_from_table,
)
from kpp.kernels import RBF
from kpp_models import GPRegression
from kpp_rkhs_shap import RKHSShap

CLOSE = {"rtol": 1e-9, "atol": 1e-11}


def of_each_draw(solve, draws):
    """Solve for one draw after the other, as the explainer does: blocks of one shape share their programs."""
    parts = [solve(draws.take_draws([i])) for i in range(draws.batch_shape[-1])]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *parts)


def of_two_points(solve, x, axis):
    """Solve for two of three points at a time, as an explainer with `instances_at_once=2`."""
    last = np.take(solve(x[1:]), [1], axis=axis)
    return np.concatenate([solve(x[:2]), last], axis=axis)


@pytest.fixture(scope="module")
def game(function):
    return Interventional(function.points[:5])


@pytest.mark.slow
def test_groups_are_the_features_of_the_explanation(function, game, x):
    table = pd.DataFrame(x, columns=["age", "bmi", "bp", "dose"])
    explainer = RKHSShap(game, groups={"body": ["bmi", "bp"]})
    explanation = explainer.explain(function, table)
    assert explanation.feature_names == ("age", "body", "dose")
    assert explanation.attrs["groups"] == {"body": ["bmi", "bp"]}
    np.testing.assert_allclose(explanation.values, shapley_values(game, function, x, groups={"b": [1, 2]}), **CLOSE)
    np.testing.assert_array_equal(explanation.data.values[:, [0, 2]], x[:, [0, 3]])
    assert np.isnan(explanation.data.values[:, 1]).all()


def test_a_group_of_one_feature_is_that_feature_under_another_name(function, game, x):
    explanation = RKHSShap(game, groups={"first": 0}).explain(function, x)
    assert explanation.feature_names == ("first", "x1", "x2", "x3")
    assert explanation.attrs["groups"] == {"first": ["x0"]}
    np.testing.assert_array_equal(explanation.data, x)


@pytest.mark.slow
def test_one_hot_columns_are_one_category(function, x):
    points = np.asarray(function.points).copy()
    points[:, 1:] = np.eye(3)[np.arange(8) % 3]
    rows = np.column_stack([x[:, 0], np.eye(3)[[2, 0, 1]]])
    one_hot = kpp.RKHSFunction(function.kernel, points, function.coefficients)
    table = pd.DataFrame(rows, columns=["age", "north", "south", "west"])
    groups = {"region": ["north", "south", "west"]}
    explanation = kpp.explain(one_hot, table, value_function="interventional", background=points, groups=groups)
    assert explanation.schema.levels == {"region": ("north", "south", "west")}
    shown = explanation.to_dataframe()
    assert shown[shown["feature"] == "region"]["data"].tolist() == ["west", "north", "south"]
    mixed = kpp.explain(one_hot, table, value_function="interventional", background=points + 0.5, groups=groups)
    assert np.isnan(mixed.data.sel(feature="region")).all()


@pytest.mark.slow_variants("STII")
@pytest.mark.parametrize("index", ["STII", pytest.param("SII", marks=pytest.mark.slow)])
def test_interactions_are_added(draws, game, x, index):
    explanation = RKHSShap(game, interactions=index, groups={"a": [0, 3]}).explain(draws, x)
    expected = of_each_draw(lambda part: interaction_values(game, part, x, index=index, groups={"a": [0, 3]}), draws)
    np.testing.assert_allclose(explanation.interactions, expected, **CLOSE)
    assert explanation.attrs["interactions"] == index
    if index == "STII":
        pairs = np.triu(np.ones((3, 3)))[None, None, None]
        total = (explanation.interactions * pairs).sum(("feature", "feature_other"))
        np.testing.assert_allclose(total, explanation.predictions - explanation.base_values, **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["least-squares", "permutation"])
def test_sampled_values_add_up_and_know_their_errors(draws, function, x, method):
    budget = 14
    game = Observational(function.points, regularization=0.01)
    explainer = RKHSShap(game, method=method, num_coalitions=budget)
    explanation = explainer.explain(draws, x, rng_key=jax.random.key(3))

    def solve(part):
        estimate = estimate_shapley(game, part, x, method=method, num_coalitions=budget, rng_key=jax.random.key(3))
        return estimate.values, estimate.standard_errors

    values, errors = of_each_draw(solve, draws)
    np.testing.assert_allclose(explanation.values, values, **CLOSE)
    np.testing.assert_allclose(explanation.standard_errors, errors, **CLOSE)
    assert float(explanation.additivity_error().max()) < 1e-10
    recorded = {name: explanation.attrs[name] for name in ("method", "exact", "regularization", "rng_key")}
    assert recorded == {"method": method, "exact": False, "regularization": 0.01, "rng_key": [0, 3]}
    raw = explainer.explain(draws, x, rng_key=jnp.array([0, 3], dtype=jnp.uint32))
    np.testing.assert_allclose(raw.values, explanation.values, **CLOSE)


@pytest.mark.slow
def test_a_tolerance_bounds_the_standard_errors():
    """16 players are not enumerated by default: 0.02 needs a part of the coalitions, 1e-6 more than 500."""
    rng = np.random.default_rng(5)
    points, rows = rng.normal(size=(12, 16)), rng.normal(size=(2, 16))
    wide = kpp.RKHSFunction(kpp.kernels.RBF(4.0), points, rng.normal(size=12))
    game = Observational(points, regularization=0.01)
    found = RKHSShap(game, tolerance=0.02, progress=False).explain(wide, rows, rng_key=jax.random.key(0))
    assert found.attrs["method"] == "least-squares" and found.attrs["tolerance_reached"]
    assert float(found.standard_errors.max()) <= 0.02 and found.attrs["coalitions"] < 2**15
    few = RKHSShap(game, tolerance=1e-6, num_coalitions=500, progress=False)
    assert not few.explain(wide, rows, rng_key=jax.random.key(0)).attrs["tolerance_reached"]


@pytest.mark.slow
def test_blocks_change_nothing(function, game, x):
    rng = np.random.default_rng(2)
    shape = (1, 45)  # 15 blocks of 3 draws
    many = kpp.RKHSFunction.over_draws(
        function.kernel, function.points, rng.normal(size=(*shape, 8)), batch_shape=shape
    )
    explainer = RKHSShap(game, method="least-squares", num_coalitions=10, instances_at_once=2, progress=False)
    explanation = explainer.explain(many, x, rng_key=jax.random.key(0))
    whole = estimate_shapley(game, many, x, method="least-squares", num_coalitions=10, rng_key=jax.random.key(0))
    np.testing.assert_allclose(explanation.values, whole.values, **CLOSE)
    np.testing.assert_allclose(explanation.standard_errors, whole.standard_errors, **CLOSE)
    assert explanation.values.shape == (1, 45, 3, 4)


@pytest.mark.slow
def test_blocks_of_a_posterior_share_one_program(function, game, x, compilations):
    rng = np.random.default_rng(2)
    many = kpp.RKHSFunction.over_draws(
        function.kernel, function.points, rng.normal(size=(1, 41, 8)), batch_shape=(1, 41)
    )
    explainer = RKHSShap(game, method="least-squares", num_coalitions=10, instances_at_once=2, progress=False)
    explainer.explain(many, x, rng_key=jax.random.key(0))
    compilations.clear()
    explainer.explain(many, x[::-1].copy(), rng_key=jax.random.key(0))
    assert not compilations


@pytest.mark.slow_variants("True")
@pytest.mark.parametrize("own_points", [False, True])
def test_some_draws_of_a_function_are_those_draws(draws, x, own_points):
    points = jnp.stack([draws.points + i for i in range(6)]).reshape(2, 3, 8, 4) if own_points else draws.points
    whole = kpp.RKHSFunction(draws.kernel, points, draws.coefficients, draws.intercept, (2, 3))
    part = whole.take_draws([2, 0])
    assert part.batch_shape == (2, 2)
    np.testing.assert_allclose(part(x), whole(x)[:, jnp.array([2, 0])], rtol=1e-12)


def test_a_function_without_draws_has_none_to_take(function):
    with pytest.raises(ValueError, match="`take_draws` needs a function with draws"):
        function.take_draws([0])


@pytest.fixture(scope="module")
def posterior(function):
    """The posterior of a regression with noise variance 0.3, at the points and coefficients of `function`."""
    covariance = np.asarray(function.kernel.gram(function.points)) + 0.3 * np.eye(8)
    return kpp.GPPosterior(function, np.linalg.inv(np.linalg.cholesky(covariance)).T)


@pytest.mark.slow
def test_the_covariance_of_each_point(posterior, game, x):
    explanation = RKHSShap(game, covariance="point", instances_at_once=2).explain(posterior, x)
    expected = of_two_points(lambda rows: shapley_covariance(game, posterior, rows), x, axis=0)
    np.testing.assert_allclose(explanation.covariance, expected, **CLOSE)
    assert not explanation.has_draws
    total = explanation.covariance.sum(("feature", "feature_other"))
    background = np.asarray(game.background)
    rows = np.concatenate([x, background])
    law = np.asarray(posterior.covariance(rows, rows))
    contrast = np.concatenate([np.eye(3), np.full((3, 5), -0.2)], axis=1)
    np.testing.assert_allclose(total, np.diag(contrast @ law @ contrast.T), rtol=1e-8)


@pytest.mark.slow
def test_the_covariance_of_all_points_together(posterior, game, x):
    explanation = RKHSShap(game, covariance="joint", groups={"a": [0, 1]}).explain(posterior, x)
    assert explanation.covariance.dims == ("instance", "instance_other", "feature", "feature_other")
    expected = shapley_covariance(game, posterior, x, x, groups={"a": [0, 1]})
    np.testing.assert_allclose(explanation.covariance, expected, **CLOSE)
    assert explanation.attrs["covariance"] == "joint"


@pytest.fixture(scope="module")
def fit():
    """A regression whose noise and lengthscale have six draws, made up so that no chain need be run."""
    import numpyro.distributions as dist

    rng = np.random.default_rng(4)
    data, y = rng.normal(size=(8, 4)), rng.normal(size=8)
    model = GPRegression(RBF(lengthscale=dist.LogNormal(0.0, 1.0)), noise_variance=dist.HalfNormal(1.0))
    found = model.fit(jax.random.key(0), data, y, inference=kpp.MAP(progress=False))
    values = {name: jnp.asarray(rng.uniform(0.5, 1.5, size=(2, 3))) for name in found.draws}
    return dataclasses.replace(found, draws=values), data


@pytest.fixture(scope="module")
def toy(draws, posterior, toy_fit):
    """A fit whose draws have different means around which all is as uncertain, and less so at their mean."""
    root = np.broadcast_to(0.5 * np.asarray(posterior.root), (2, 3, 8, 8))
    return toy_fit(draws, posteriors={"mean": posterior, "draws": kpp.GPPosterior(draws, root)}), posterior.mean.points


@pytest.mark.nightly_variants("fit-draws")
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "at"), [("toy", "mean"), ("fit", "draws")])
def test_draws_and_law_of_a_fit_make_the_total_covariance(request, tmp_path, x, kind, at):
    fitted, data = request.getfixturevalue(kind)
    game = Interventional(data[:5])
    explanation = RKHSShap(game, covariance="point", covariance_at=at, instances_at_once=2).explain(fitted, x)
    assert explanation.covariance.shape == (2, 3, 3, 4, 4)
    assert explanation.attrs["covariance_at"] == at
    explanation.save(tmp_path / "e.nc")
    np.testing.assert_array_equal(kpp.Explanation.load(tmp_path / "e.nc").covariance, explanation.covariance)
    process = fitted.function_posterior(at=at)
    law = of_two_points(lambda rows: shapley_covariance(game, process, rows), x, axis=len(process.batch_shape))
    within = law if at == "mean" else law.mean(axis=(0, 1))
    values = explanation.values.values.reshape(6, 3, 4)
    between = np.stack([np.cov(values[:, i].T, bias=True) for i in range(3)])
    np.testing.assert_allclose(explanation.total_covariance(), within + between, **CLOSE)
    assert (explanation.interval(0.9).sel(bound="upper") > explanation.mean().values).all()
    assert float(explanation.additivity_error().max()) < 1e-10


def expit(values):
    return 1.0 / (1.0 + np.exp(-np.asarray(values)))


PROBABILITY = [
    pytest.param({}, id="exact"),
    pytest.param({"method": "least-squares", "num_coalitions": 12}, marks=pytest.mark.slow, id="sampled"),
]


@pytest.mark.slow_variants("exact")
@pytest.mark.parametrize("options", PROBABILITY)
def test_probabilities_are_explained_draw_by_draw(draws, game, x, toy_fit, options):
    explainer = RKHSShap(game, scale="probability", interactions="SII", **options)
    explanation = explainer.explain(toy_fit(draws), x, rng_key=jax.random.key(0))
    assert explanation.values.dims == ("chain", "draw", "instance", "feature")
    np.testing.assert_allclose(explanation.predictions, expit(draws(x)), rtol=1e-12)
    np.testing.assert_allclose(explanation.base_values, expit(draws(game.background)).mean(axis=-1), rtol=1e-12)
    assert float(explanation.additivity_error().max()) < 1e-10
    assert explanation.attrs["scale"] == "probability"
    if not options:
        table = np.empty((16, 2, 3, 3))
        for row in range(16):
            present = np.array([row >> j & 1 for j in range(4)], dtype=bool)
            imputed = np.where(present, x[:, None], np.asarray(game.background)[None]).reshape(-1, 4)
            table[row] = expit(draws(imputed)).reshape(2, 3, 3, 5).mean(axis=-1)
        expected = np.moveaxis(np.asarray(shapley_values_from_table(table)), 0, -1)
        np.testing.assert_allclose(explanation.values, expected, **CLOSE)
        assert explanation.interactions.shape == (2, 3, 3, 4, 4)


REFUSED = [
    ({"scale": "logit"}, ValueError, "`scale` must be one of"),
    ({"interactions": "sii"}, ValueError, "`interactions` must be one of"),
    ({"covariance": "full"}, ValueError, "`covariance` must be one of"),
    ({"covariance": "point", "scale": "probability"}, ValueError, "`covariance` belongs to the latent scale"),
    ({"instances_at_once": 0}, ValueError, "`instances_at_once` must be at least 1"),
    ({"groups": {"a": ["x9"]}}, ValueError, "unknown feature 'x9'"),
    ({"covariance": "point"}, TypeError, "`covariance` needs the posterior of a Gaussian process"),
    ({"scale": "probability"}, TypeError, "`scale` 'probability' needs a kpp.Fit"),
]


@pytest.mark.parametrize(("options", "error", "message"), REFUSED)
def test_options_that_cannot_be_are_refused(function, game, x, options, error, message):
    with pytest.raises(error, match=message):
        RKHSShap(game, **options).explain(function, x)


def test_the_probability_scale_needs_probabilities_and_an_imputation(draws, game, x, toy_fit):
    with pytest.raises(TypeError, match=r"needs a classifier; `predictor` predicts \['mean'\]"):
        RKHSShap(game, scale="probability").explain(toy_fit(draws, probability=False), x)
    with pytest.raises(TypeError, match="is an AbstractImputation, which takes any function, got Baseline"):
        RKHSShap(Baseline(), scale="probability").explain(toy_fit(draws), x)
