"""The error of a value function equals a loop over coalitions and points, and the closed form for a Gaussian."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pandas as pd
import pytest

import kpp
from kpp.games import AbstractValueFunction, GaussianConditional, Interventional, Observational, value_error
from kpp.kernels import RBF

KEY = jax.random.key(0)
SLOPES = np.array([1.0, -2.0, 0.5, 1.5])
COVARIANCE = 0.6 ** np.abs(np.subtract.outer(np.arange(4), np.arange(4)))


class Conditional(AbstractValueFunction):
    """The exact conditional expectation of a linear function of Gaussian features with mean 0."""

    covariance: np.ndarray
    slopes: np.ndarray

    def __call__(self, function, x, coalitions):
        return np.stack([self._of(np.flatnonzero(mask), np.asarray(x)) for mask in np.asarray(coalitions)])

    def _of(self, known, x):
        if not len(known):
            return np.zeros(len(x))
        inside = self.covariance[np.ix_(known, known)]
        return x[:, known] @ np.linalg.solve(inside, self.covariance[known] @ self.slopes)

    def base(self, function):
        return 0.0


def linear(x):
    return np.asarray(x) @ SLOPES


def gaussian_rows(num, seed=0):
    return np.random.default_rng(seed).multivariate_normal(np.zeros(4), COVARIANCE, size=num)


def unexplained(missing):
    """Var(f | x_S) for the absent features `missing`, by the Schur complement; Var(f) if all are absent."""
    known = [j for j in range(4) if j not in missing]
    rest = COVARIANCE[np.ix_(missing, missing)]
    if known:
        cross = COVARIANCE[np.ix_(missing, known)]
        rest = rest - cross @ np.linalg.solve(COVARIANCE[np.ix_(known, known)], cross.T)
    return SLOPES[missing] @ rest @ SLOPES[missing]


def averages_by_size(of_missing):
    return [
        np.mean([of_missing(list(group)) for group in itertools.combinations(range(4), 4 - size)]) for size in range(5)
    ]


@pytest.mark.parametrize("weights", ["uniform", "shapley"])
def test_a_loop_gives_the_same_numbers(weights):
    rng = np.random.default_rng(1)
    background, x = rng.normal(size=(6, 4)), rng.normal(size=(5, 4))

    def f(rows):
        rows = np.asarray(rows)
        return np.sin(rows[:, 0]) * rows[:, 1] + rows[:, 2] ** 2 - rows[:, 3]

    found = value_error(Interventional(background), f, x, weights=weights)
    squares = {}
    for size in range(5):
        for group in itertools.combinations(range(4), size):
            for i, point in enumerate(x):
                rows = background.copy()
                rows[:, list(group)] = point[list(group)]
                squares[group, i] = (f(point[None])[0] - np.mean(f(rows))) ** 2
    kernel = {1: 1 / 3, 2: 1 / 4, 3: 1 / 3} if weights == "shapley" else {1: 4, 2: 6, 3: 4}
    weight = {size: share / sum(kernel.values()) for size, share in kernel.items()}
    of_points = []
    for i in range(5):
        sizes = {s: [v for (group, j), v in squares.items() if len(group) == s and j == i] for s in weight}
        of_points.append(sum(weight[s] * np.mean(values) for s, values in sizes.items()))
    np.testing.assert_allclose(found["mean_squared_error"], np.mean(of_points), rtol=1e-12)
    np.testing.assert_allclose(found["standard_error"], np.std(of_points, ddof=1) / np.sqrt(5), rtol=1e-12)
    np.testing.assert_allclose(found["by_instance"], of_points, rtol=1e-12)
    for row, mask in enumerate(found["coalitions"].values):
        values = [squares[tuple(np.flatnonzero(mask)), i] for i in range(5)]
        np.testing.assert_allclose(found["by_coalition"][row], np.mean(values), rtol=1e-9, atol=1e-14)
        error = np.std(values, ddof=1) / np.sqrt(5)
        np.testing.assert_allclose(found["by_coalition_standard_error"][row], error, rtol=1e-9, atol=1e-14)
    for size in range(5):
        each = [np.mean([v for (g, j), v in squares.items() if len(g) == size and j == i]) for i in range(5)]
        np.testing.assert_allclose(found["by_size"].sel(size=size), np.mean(each), rtol=1e-9, atol=1e-14)
        error = np.std(each, ddof=1) / np.sqrt(5)
        np.testing.assert_allclose(found["by_size_standard_error"].sel(size=size), error, rtol=1e-9, atol=1e-14)
    assert (found.attrs["num_coalitions"], found.attrs["all_coalitions"]) == (14, 1)


def test_the_conditional_expectation_of_a_gaussian_has_the_closed_form():
    """The error is the conditional variance; 4 standard errors, of 4000 points."""
    found = value_error(Conditional(COVARIANCE, SLOPES), linear, gaussian_rows(4000))
    expected = np.array(averages_by_size(unexplained))
    scores = (found["by_size"] - expected) / found["by_size_standard_error"].where(expected > 0, 1.0)
    assert float(np.abs(scores).max()) < 4
    np.testing.assert_allclose(found["by_size"].sel(size=4), 0.0, atol=1e-20)
    total = expected[1:4] @ np.array([4, 6, 4]) / 14
    assert abs(float((found["mean_squared_error"] - total) / found["standard_error"])) < 4


@pytest.mark.slow
def test_the_interventional_values_of_a_gaussian_have_the_closed_form():
    r"""(f(x) - v(S))^2 has the mean b' C b + (b' mean)^2 for the absent features' slopes b; 4 standard errors."""
    background = gaussian_rows(50, seed=1)
    found = value_error(Interventional(background), linear, gaussian_rows(1500))

    def error(missing):
        slopes = SLOPES[missing]
        return slopes @ COVARIANCE[np.ix_(missing, missing)] @ slopes + (slopes @ background[:, missing].mean(0)) ** 2

    expected = np.array(averages_by_size(error))
    scores = (found["by_size"][:4] - expected[:4]) / found["by_size_standard_error"][:4]
    assert float(np.abs(scores).max()) < 4


@pytest.mark.slow
def test_better_estimates_of_the_conditional_expectation_have_smaller_errors():
    """The Gaussian conditional, which is right here, beats kernels, and both beat independence."""
    background, x = gaussian_rows(80, seed=2), gaussian_rows(150)
    games = [GaussianConditional(background), Observational(background, kernel=RBF(3.0)), Interventional(background)]
    found = [value_error(game, linear, x) for game in games]
    for better, worse in itertools.pairwise(found):
        gain = worse["by_instance"] - better["by_instance"]
        assert float(gain.mean()) > 2 * float(gain.std(ddof=1)) / np.sqrt(150)
    # The best possible error bounds all of them from below, up to the standard error.
    best = value_error(Conditional(COVARIANCE, SLOPES), linear, x)["by_instance"]
    for each in found:
        loss = each["by_instance"] - best
        assert float(loss.mean()) > -2 * float(loss.std(ddof=1)) / np.sqrt(150)


@pytest.mark.slow
def test_draws_outputs_names_and_groups_keep_their_dimensions():
    rng = np.random.default_rng(3)
    points, coefficients = rng.normal(size=(6, 3)), rng.normal(size=(1, 2, 6, 2))
    draws = kpp.RKHSFunction.over_draws(RBF(1.0), points, coefficients, batch_shape=(1, 2))
    x = pd.DataFrame(rng.normal(size=(4, 3)), columns=["a", "b", "c"])
    found = value_error(Interventional(points), draws, x, groups={"ab": ["a", "b"]})
    assert found["mean_squared_error"].dims == ("chain", "draw", "output")
    assert found["by_size"].dims == ("chain", "draw", "size", "output")
    assert found["coalitions"]["feature"].values.tolist() == ["ab", "c"]
    one = kpp.RKHSFunction(RBF(1.0), points, coefficients[0, 1, :, 0])
    alone = value_error(Interventional(points), one, x.to_numpy(), groups={"ab": [0, 1]})
    for name in ("mean_squared_error", "standard_error", "by_size", "by_coalition", "by_instance"):
        np.testing.assert_allclose(found[name].isel(chain=0, draw=1, output=0), alone[name], rtol=1e-9, atol=1e-14)


class Additive(AbstractValueFunction):
    """A game whose error depends on the coalition only: the square of the sum of the absent players' weights."""

    weights: np.ndarray

    def __call__(self, function, x, coalitions):
        missing = ~np.asarray(coalitions) @ self.weights
        return np.zeros(len(x))[None] + missing[:, None]

    def base(self, function):
        return 0.0


def zero(x):
    return np.zeros(len(x))


@pytest.mark.nightly
def test_drawn_coalitions_have_honest_standard_errors():
    """12 players, 60 coalitions: 95 % intervals over 60 keys hold the mean over all coalitions, which is known."""
    game, x = Additive(np.random.default_rng(4).normal(size=12)), np.zeros((2, 12))
    exact = value_error(game, zero, x, num_coalitions=4096)
    assert exact.attrs["all_coalitions"] and float(exact["standard_error"]) == 0.0
    scores, sizes = [], []
    for seed in range(60):
        found = value_error(game, zero, x, num_coalitions=60, rng_key=jax.random.key(seed))
        scores.append(float((found["mean_squared_error"] - exact["mean_squared_error"]) / found["standard_error"]))
        sizes.append(float(found["by_size"].sel(size=5) - exact["by_size"].sel(size=5)))
    masks = found["coalitions"].values
    assert len(np.unique(masks, axis=0)) == len(masks) == 57
    assert np.bincount(masks.sum(axis=1)).tolist() == [1, *[5] * 11, 1]  # 60 shared evenly by 11 sizes
    assert 0.86 < np.mean(np.abs(scores) < 1.96) <= 1.0
    assert abs(np.mean(sizes)) < 4 * np.std(sizes) / np.sqrt(60)  # unbiased


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": np.ones((1, 4))}, ValueError, "`x` must have at least 2 points"),
        ({"weights": "kernel"}, ValueError, "`weights` must be one of"),
        ({"groups": {"all": [0, 1, 2, 3]}}, ValueError, "`x` must have at least two players"),
        ({"num_coalitions": 5}, ValueError, "`num_coalitions` must be at least 6, two for each size"),
        ({"num_coalitions": 10}, TypeError, "`rng_key` must be a single JAX random key"),
        ({"num_coalitions": 0}, ValueError, "`num_coalitions` must be at least 1"),
    ],
)
def test_bad_input_is_refused(change, error, message):
    arguments = {"x": gaussian_rows(3), **change}
    with pytest.raises(error, match=message):
        value_error(Conditional(COVARIANCE, SLOPES), linear, arguments.pop("x"), **arguments)


def test_the_plot_shows_each_value_function():
    x = gaussian_rows(20)
    one = value_error(Conditional(COVARIANCE, SLOPES), linear, x)
    two = value_error(Interventional(x[:5]), linear, x)
    ax = kpp.plots.value_error({"exact": one, "independent": two})
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["exact", "independent"]
    line = ax.containers[0].lines[0]
    np.testing.assert_allclose(line.get_ydata(), one["by_size"])
    assert kpp.plots.value_error(one).get_legend() is None
    with pytest.raises(ValueError, match="`errors` must come from `kpp.games.value_error`"):
        kpp.plots.value_error(one[["by_instance"]])
    with pytest.raises(ValueError, match="at least one data set"):
        kpp.plots.value_error({})
