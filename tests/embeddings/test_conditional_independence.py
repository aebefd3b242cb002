"""The test of conditional independence against its definition, all permutations, all signs, and simulations."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pandas as pd
import pytest

from kpp.causal import CausalDAG, Independence
from kpp.embeddings import check_graph, conditional_independence_test, independence_test
from kpp.kernels import RBF

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(8, 2))
X = np.sin(2 * Z[:, :1]) + RNG.normal(size=(8, 1))
Y = X + Z[:, 1:] + RNG.normal(size=(8, 1))
KEY = jax.random.key(0)
KERNELS = {"x_kernel": RBF(1.2), "y_kernel": RBF(0.9)}
OPTIONS = KERNELS | {"num_permutations": 4999}
GIVEN = OPTIONS | {"given_kernel": RBF(1.1)}
H = np.eye(8) - 1 / 8
RIDGES = np.logspace(-7, 0, 15)
STANDARD_ERROR = 0.0071  # of a share of 4999 draws, at most


def gram(kernel, values):
    return np.asarray(kernel.gram(values))


def score_and_share(statistic, draws):
    return np.mean(draws >= statistic - 1e-9), (statistic - draws.mean()) / draws.std()


def left_out(outputs, inputs, ridge):
    """The squared errors of outputs with some Gram matrix, predicted by kernel ridge from the other rows."""
    errors = []
    for i in range(len(outputs)):
        rest = np.arange(len(outputs)) != i
        weights = np.linalg.solve(inputs[rest][:, rest] + ridge * np.eye(len(outputs) - 1), inputs[rest, i])
        errors.append(outputs[i, i] - 2 * weights @ outputs[rest, i] + weights @ outputs[rest][:, rest] @ weights)
    return np.array(errors)


def residual_maker(outputs, given):
    """The regression of the docstring, by refits and solves."""

    def smoother(inputs, ridge):
        return inputs @ np.linalg.inv(inputs + ridge * np.eye(8))

    grids = [(given, 8 * ridge) for ridge in RIDGES]
    losses = [left_out(outputs, *each) for each in grids]
    first = smoother(*grids[np.argmin([loss.mean() for loss in losses])])
    fitted = first @ outputs @ first.T
    distances = np.diag(fitted)[:, None] + np.diag(fitted)[None] - 2 * fitted
    refined = np.exp(-2 * distances / np.median(distances[np.triu_indices(8, 1)])) * given
    grids += [(refined, 8 * ridge) for ridge in RIDGES]
    losses += [left_out(outputs, refined, 8 * ridge) for ridge in RIDGES]
    best = int(np.argmin([loss.mean() for loss in losses]))
    for candidate in range(best - best % 15, best + 1):
        excess = losses[candidate] - losses[best]
        if excess.mean() <= excess.std() / 8**0.5:
            return H @ (np.eye(8) - smoother(*grids[candidate])) @ H
    raise AssertionError


@pytest.mark.slow
def test_given_nothing_it_is_the_permutation_test_of_hsic():
    k, m = (H @ gram(kernel, v) @ H for kernel, v in zip(KERNELS.values(), (X, Y), strict=True))
    orders = np.array(list(itertools.permutations(range(8))))
    draws = np.array([np.sum(k * m[order][:, order]) for order in orders])
    share, score = score_and_share(np.sum(k * m), draws)
    found = conditional_independence_test(KEY, X, Y, **OPTIONS)
    assert abs(found.p_value - share) < 4 * STANDARD_ERROR
    assert abs(found.statistic - score) < 0.15  # mean and standard deviation of 4999 draws: errors of 0.03 or less
    assert (found.num_permutations, found.num_rows) == (4999, 8)


@pytest.mark.slow
def test_given_others_it_is_the_definition():
    k, m = (H @ gram(kernel, v) @ H for kernel, v in zip(KERNELS.values(), (X, Y), strict=True))
    given = gram(RBF(1.1), Z)
    a, b = residual_maker(k, given), residual_maker(m, given)
    weights = a @ ((b @ m @ b) * given) @ a
    scale = 1 / np.sqrt(np.diag(a @ a))
    terms = (a @ k @ a) * np.outer(scale, scale) * weights
    signs = np.array(list(itertools.product([-1, 1], repeat=8)))
    share, score = score_and_share(np.trace(k @ weights), np.sum((signs @ terms) * signs, axis=1))
    found = conditional_independence_test(KEY, X, Y, Z, **GIVEN)
    assert abs(found.p_value - share) < 4 * STANDARD_ERROR
    assert abs(found.statistic - score) < 0.15


@pytest.mark.slow
def test_without_variation_there_is_nothing_to_reject():
    for x, given in ((np.ones((8, 1)), None), (np.ones((8, 1)), Z)):
        assert conditional_independence_test(KEY, x, Y, given, **OPTIONS)[:2] == (0.0, 1.0)
    # A constant Z is as none.
    none, constant = (conditional_independence_test(KEY, X, Y, given, **OPTIONS) for given in (None, np.ones((8, 1))))
    assert none == constant


def frame_of(n, seed=0):
    """A chain season -> rain -> wet, and a cause of its own, sprinkler."""
    rng = np.random.default_rng(seed)
    season = rng.choice(["dry", "mild", "wet"], size=n)
    rain = pd.Series(season).map({"dry": -1.5, "mild": 0.0, "wet": 1.5}) + rng.normal(size=n)
    sprinkler = rng.uniform(size=n) < 0.5
    wet = rain + 2.0 * sprinkler + 0.5 * rng.normal(size=n)
    return pd.DataFrame({"season": pd.Categorical(season), "rain": rain, "sprinkler": sprinkler, "wet": wet})


GRAPH = CausalDAG([("season", "rain"), ("rain", "wet"), ("sprinkler", "wet")])


@pytest.fixture(scope="module")
def checked():
    return check_graph(KEY, GRAPH, frame_of(80), num_permutations=199)


@pytest.mark.slow
def test_a_graph_that_is_right_passes(checked):
    assert list(checked["independence"]) == ["sprinkler _||_ season", "wet _||_ season | rain", "sprinkler _||_ rain"]
    assert (checked["adjusted_p_value"] > 0.05).all()
    assert (checked["num_rows"] == 80).all()


@pytest.mark.slow
def test_an_edge_that_is_missing_is_found():
    wrong = CausalDAG([("season", "rain"), ("rain", "wet")], nodes=["season", "rain", "sprinkler", "wet"])
    found = check_graph(KEY, wrong, frame_of(80), num_permutations=199).set_index("independence")
    assert list(found.index[found["adjusted_p_value"] <= 0.05]) == ["wet _||_ sprinkler"]


@pytest.mark.slow_variants("holm", "bh", "by")
@pytest.mark.parametrize("correction", ["holm", "bh", "by"])
def test_adjusted_p_values_are_those_of_the_definitions(checked, correction):
    p = np.array(checked["p_value"])
    found = check_graph(KEY, GRAPH, frame_of(80), num_permutations=199, correction=correction)
    order = np.sort(p)
    if correction == "holm":
        expected = [max((3 - j) * order[j] for j in range(3) if order[j] <= each) for each in p]
    else:
        factor = 1 + 1 / 2 + 1 / 3 if correction == "by" else 1
        expected = [min(factor * 3 / (j + 1) * order[j] for j in range(3) if order[j] >= each) for each in p]
    np.testing.assert_allclose(found["adjusted_p_value"], np.minimum(expected, 1.0), rtol=1e-12)


def test_the_names_of_levels_do_not_matter():
    frame = frame_of(80)
    renamed = frame.assign(season=frame["season"].map({"dry": "z", "mild": "a", "wet": "m"}).astype(str))
    statement = Independence("wet", ("season",), ("rain",))
    options = {"tested": "distribution", "num_permutations": 199}
    first, second = (independence_test(KEY, table, statement, **options) for table in (frame, renamed))
    assert first.p_value == second.p_value
    np.testing.assert_allclose(first.statistic, second.statistic, rtol=1e-6)


def test_a_graph_without_independences_has_an_empty_table():
    found = check_graph(KEY, CausalDAG([("rain", "wet")]), frame_of(8))
    assert len(found) == 0
    assert list(found.columns) == ["independence", "statistic", "p_value", "adjusted_p_value", "num_rows"]


MISTAKES = [
    ({"y": Y[:5]}, "`x` and `y` must have the same number of rows, got 8 and 5"),
    ({"given": Z[:5]}, "`x` and `given` must have the same number of rows, got 8 and 5"),
    ({"x": X[:3], "y": Y[:3]}, "`x` must hold at least four rows, got 3"),
    ({"num_permutations": 0}, "`num_permutations` must be at least 1, got 0"),
    ({"max_rows": 3}, "`max_rows` must be at least 4, got 3"),
    ({"x": X * np.nan}, "`x` must"),
    (
        {"x": pd.DataFrame({"id": list("abcdefghijkl")}), "y": np.arange(12.0)},
        r"`x` must not hold columns of text with a value of its own in each row, got \['id'\]",
    ),
]


@pytest.mark.parametrize(("changed", "message"), MISTAKES)
def test_mistakes_are_named(changed, message):
    with pytest.raises(ValueError, match=message):
        conditional_independence_test(**({"rng_key": KEY, "x": X, "y": Y} | changed))


def test_mistakes_in_a_statement_are_named():
    frame, statement = frame_of(8), Independence("wet", ("fog",))
    with pytest.raises(ValueError, match=r"`frame` lacks the columns \['fog'\]; it has \['season'"):
        independence_test(KEY, frame, statement, tested="distribution")
    with pytest.raises(ValueError, match="`regularization` goes with `tested='mean'`"):
        independence_test(KEY, frame, statement, tested="distribution", regularization=0.1)
    with pytest.raises(ValueError, match="`tested` must be one of"):
        independence_test(KEY, frame, statement, tested="variance")
    with pytest.raises(ValueError, match="`correction` must be one of"):
        check_graph(KEY, GRAPH, frame, correction="none")


def p_values(draw, num_sets):
    """The p-values of data sets (x, y, z)."""
    return np.array(
        [
            conditional_independence_test(jax.random.key(i), *draw(np.random.default_rng(i)), num_permutations=199)
            for i in range(num_sets)
        ]
    )[:, 1]


def confounded(effect, columns=1, spread=0.5):
    def draw(rng):
        z = rng.normal(size=(100, columns))
        e, f = spread * rng.normal(size=(2, 100))
        u = z.sum(axis=1) / columns**0.5
        return (np.sin(2 * u) + e)[:, None], (np.sin(2 * u) + effect(e) + f)[:, None], z

    return draw


@pytest.mark.nightly
def test_an_effect_without_covariance_is_found():
    """40 sets: standard deviation 0.08. The levels are measured by `examples.coverage` and `examples.benchmarks`."""
    assert np.mean(p_values(confounded(lambda e: 5 * e**2), 40) <= 0.05) >= 0.5
