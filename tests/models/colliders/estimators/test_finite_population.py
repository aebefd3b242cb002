"""On a finite population with exact conditional expectations all that the projection promises holds to rounding."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from kpp.causal import Independence
from kpp_models.estimators import ProjectedClassifier, ProjectedQuantileRegressor, ProjectedRegressor

EXACT = {"rtol": 0.0, "atol": 1e-10}  # sums of some hundred numbers of order 1
SIMPLE, GENERAL = Independence("y", (1, 2)), Independence("y", (1,), (3,))
QUIET = {"check": False, "gain_folds": None}
STRICT = {"tol": 1e-13, "max_cycles": 2000}


def means_over(values: np.ndarray, x: np.ndarray, columns) -> np.ndarray:
    """For each row the mean over the rows that agree in some columns; over all rows if there are none."""
    found = np.empty_like(values)
    for i, row in enumerate(x[:, list(columns)]):
        found[i] = values[(x[:, list(columns)] == row).all(axis=1)].mean(axis=0)
    return found


def probabilities(x: np.ndarray) -> np.ndarray:
    scores = np.stack([np.zeros(len(x)), 0.3 * x[:, 0] - 0.2 * x[:, 1], 0.1 * x[:, 1] * x[:, 3]], axis=1)
    return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)


def distribution(x: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-(thresholds - x[:, :1] - 0.5 * x[:, 1:2])))


@pytest.mark.parametrize("independence", [SIMPLE, GENERAL], ids=str)
def test_the_projected_function_has_the_baseline_as_its_conditional_mean(independence, population, cell_means):
    x, h = population
    y = np.random.default_rng(1).normal(size=len(x)) + x[:, 3]
    options = {"collider": independence, "conditional": cell_means, "baseline": cell_means}
    model = ProjectedRegressor(lambda rows: h, prefit=True, **options, **QUIET).fit(x, y)
    found, expected = model.predict(x), means_over(y, x, independence.given)
    np.testing.assert_allclose(means_over(found, x, independence.condition), expected, **EXACT)
    # It is h less a function of the condition, hence the orthogonal projection.
    taken = h - found
    np.testing.assert_allclose(means_over(taken, x, independence.condition), taken, **EXACT)


@pytest.mark.parametrize("independence", [SIMPLE, GENERAL], ids=str)
def test_projecting_twice_is_projecting_once(independence, population, cell_means):
    x, h = population
    options = {"collider": independence, "conditional": cell_means, "baseline": cell_means, "prefit": True, **QUIET}
    once = ProjectedRegressor(lambda rows: h, **options).fit(x, h)
    twice = ProjectedRegressor(once, **options).fit(x, h)
    np.testing.assert_allclose(twice.predict(x), once.predict(x), **EXACT)


@pytest.mark.parametrize("independence", [SIMPLE, GENERAL], ids=str)
def test_probabilities_obey_the_statement_before_they_are_clipped(independence, population, cell_means):
    x, h = population
    y = np.digitize(h, np.quantile(h, [0.3, 0.7]))
    indicators = (y[:, None] == np.arange(3)).astype(float)
    model = ProjectedClassifier(
        probabilities, prefit=True, collider=independence, conditional=cell_means, baseline=cell_means, check=False
    ).fit(x, y)
    found, expected = model.projected_values(x), means_over(indicators, x, independence.given)
    np.testing.assert_allclose(means_over(found, x, independence.condition), expected, **EXACT)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, **EXACT)


@pytest.mark.parametrize("independence", [SIMPLE, GENERAL], ids=str)
def test_latent_scores_keep_their_mean_given_the_parents_only(independence, population, cell_means):
    x, h = population
    y = np.digitize(h, np.quantile(h, [0.3, 0.7]))
    model = ProjectedClassifier(
        probabilities, prefit=True, scale="latent", collider=independence, conditional=cell_means, check=False
    ).fit(x, y)
    scores = np.log(probabilities(x))
    scores -= scores.mean(axis=1, keepdims=True)
    found, expected = model.projected_values(x), means_over(scores, x, independence.given)
    np.testing.assert_allclose(means_over(found, x, independence.condition), expected, **EXACT)
    exponentials = np.exp(found)
    np.testing.assert_allclose(model.predict_proba(x), exponentials / exponentials.sum(axis=1, keepdims=True), **EXACT)


@pytest.mark.parametrize("independence", [SIMPLE, GENERAL], ids=str)
def test_distribution_functions_obey_the_statement_before_they_are_mended(independence, population, cell_means):
    x, y = population
    model = ProjectedQuantileRegressor(
        distribution,
        prefit=True,
        num_thresholds=7,
        collider=independence,
        conditional=cell_means,
        baseline=cell_means,
        check=False,
    ).fit(x, y)
    below = (y[:, None] <= model.thresholds_).astype(float)
    found, expected = model.projected_values(x), means_over(below, x, independence.given)
    np.testing.assert_allclose(means_over(found, x, independence.condition), expected, **EXACT)


def brute_force(h, x, statements, baselines):
    """The function nearest to h with the baselines as its means in the cells of each condition, by linear algebra."""
    blocks = []
    for statement in statements:
        columns = x[:, list(statement.condition)]
        blocks.append((columns[:, None] == np.unique(columns, axis=0)).all(axis=2).astype(float))
    design = np.concatenate(blocks, axis=1)
    sides = [block.T @ (h - baseline) for block, baseline in zip(blocks, baselines, strict=True)]
    coefficients = np.linalg.lstsq(design.T @ design, np.concatenate(sides), rcond=1e-12)[0]
    return h - design @ coefficients


SEVERAL = {
    "two": (Independence("y", (1,)), Independence("y", (2,))),
    "overlapping": (Independence("y", (0, 1)), Independence("y", (1, 2)), Independence("y", (3,))),
    "given": (Independence("y", (1,), (3,)), Independence("y", (2, 0), (3,))),
}


@pytest.mark.parametrize("several", ["in-turn", "jointly"])
@pytest.mark.parametrize("name", SEVERAL)
def test_several_statements_give_the_projection_onto_the_intersection(name, several, population, cell_means, cells):
    x, h = population
    statements = SEVERAL[name]
    y = np.random.default_rng(2).normal(size=len(x)) + x[:, 3]
    conditional = cell_means if several == "in-turn" else make_pipeline(cells, LinearRegression())
    options = {"collider": statements, "conditional": conditional, "baseline": cell_means, "several": several}
    model = ProjectedRegressor(lambda rows: h, prefit=True, **options, **QUIET, **STRICT).fit(x, y)
    baselines = [means_over(y, x, statement.given) for statement in statements]
    # The cycle stops where a further one changes less than 1e-13; least squares loses some digits on a singular matrix.
    expected = brute_force(h, x, statements, baselines)
    np.testing.assert_allclose(model.predict(x), expected, rtol=0.0, atol=1e-9)
    for statement, baseline in zip(statements, baselines, strict=True):
        np.testing.assert_allclose(means_over(model.predict(x), x, statement.condition), baseline, rtol=0.0, atol=1e-9)


def test_statements_given_different_columns_are_imposed_in_turn(cell_means):
    # All combinations once, so that columns are independent and y = u(x2) + v(x3) has the means both statements want.
    grid = np.stack(np.meshgrid(*[np.arange(3.0)] * 4, indexing="ij"), axis=-1).reshape(-1, 4)
    h, y = np.sin(grid @ [1.0, 2.0, 3.0, 4.0]), grid[:, 2] ** 2 + np.cos(grid[:, 3])
    statements = (Independence("y", (0,), (2,)), Independence("y", (1,), (3,)))
    model = ProjectedRegressor(
        lambda rows: h, prefit=True, collider=statements, conditional=cell_means, baseline=cell_means, **QUIET, **STRICT
    ).fit(grid, y)
    baselines = [means_over(y, grid, statement.given) for statement in statements]
    expected = brute_force(h, grid, statements, baselines)
    np.testing.assert_allclose(model.predict(grid), expected, rtol=0.0, atol=1e-9)


def test_mean_independence_is_enforced_and_not_independence(cell_means):
    """Example (29) of Bouabid et al. (2023), X1 = Y 1{X2 > 0}: E[Y | X] = X1 has a spread that depends on X2."""
    y, x2 = map(np.ravel, np.meshgrid([-1.5, -0.5, 0.5, 1.5], [-2.0, -1.0, 1.0, 2.0]))
    x = np.stack([y * (x2 > 0), x2], axis=1)
    options = {"collider": Independence("y", (1,)), "conditional": cell_means, "prefit": True, **QUIET}
    model = ProjectedRegressor(lambda rows: rows[:, 0] + np.sin(rows[:, 1]), **options).fit(x, y)
    found = model.predict(x)
    np.testing.assert_allclose(found, x[:, 0], **EXACT)
    np.testing.assert_allclose(means_over(found, x, (1,)), 0.0, **EXACT)
    np.testing.assert_allclose(found[x2 < 0], 0.0, **EXACT)
    assert found[x2 > 0].std() > 1
