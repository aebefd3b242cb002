"""Observational values in low rank: the definition, the limits, the error that is told, and where they are used."""

from __future__ import annotations

import dataclasses
import importlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kpp
from kpp.functions import RKHSFunction
from kpp.games import (
    Interventional,
    Observational,
    all_coalitions,
    landmark_error,
    shapley_covariance,
    shapley_values,
    shapley_values_from_table,
)
from kpp.kernels import RBF, Categorical, Linear, Matern12, Periodic, ProductKernel
from oracles.kernels import rbf
from oracles.landmark_conditioning import gaussian_conditional_values, landmark_values, landmark_weights

embeddings = importlib.import_module("kpp.games.values.conditional.conditional_embeddings")

RNG = np.random.default_rng(4)
COALITIONS = all_coalitions(3)
# The first feature holds codes, and two of the landmarks have the same code: their kernel matrix is singular there.
BACKGROUND = np.column_stack([RNG.integers(0, 3, 30), RNG.normal(size=(30, 2))]).astype(float)
BACKGROUND[:, 2] += 0.8 * BACKGROUND[:, 1]
X, POINTS, ALPHA = BACKGROUND[:3] + [0, 0.2, -0.1], BACKGROUND[5:12], RNG.normal(size=7)
LENGTHSCALE = np.array([1.0, 0.7, 1.4])
SMOOTH = RBF(lengthscale=LENGTHSCALE, variance=1.7)
MIXED = ProductKernel((Categorical(0.4), Linear(), Periodic(1.3, variance=4.0))) * 0.6
GIVEN = ProductKernel((Categorical(0.4), RBF(0.7), RBF(1.4)))
# Half of the values of feature 1 are close to each other, and feature 2 has equal values: the kernel matrix of the rows
# is singular for each single feature.
CROWDED = BACKGROUND * np.where(np.arange(30)[:, None] % 2 == 0, [1.0, 0.01, 1.0], 1.0)
CROWDED[:, 2] = np.round(CROWDED[:, 2], 1)
# The features at the landmarks have errors of the square root of the rounding errors, 1e-8, where x is far from all.
TOLERANCE = {"rtol": 1e-8, "atol": 2e-8}


@eqx.filter_jit
def factors(kernel, a, b):
    return kernel.factors(a, b)


def matrix(kernel):
    """The oracle's kernel: factors of the present features by the kernel's own definition, multiplied one by one."""

    def evaluate(a, b, mask):
        full = [np.zeros((len(rows), 3)) for rows in (a, b)]
        for target, rows in zip(full, (a, b), strict=True):
            target[:, mask] = rows
        return np.prod(np.asarray(factors(kernel, *full))[mask], axis=0)

    return evaluate


def smooth_matrix(a, b, mask):
    return rbf(a, b, LENGTHSCALE[mask])


CASES = {
    "an RBF kernel": (SMOOTH, None, smooth_matrix),
    "a sum of terms and a kernel of its own": (SMOOTH + MIXED + 0.3, GIVEN, matrix(GIVEN)),
    "factors of both signs": (MIXED, None, matrix(MIXED)),
}


@pytest.mark.nightly_variants(
    "factors of both signs-imputed",
    "a sum of terms and a kernel of its own-imputed",
    "a sum of terms and a kernel of its own-embedded",
)
@pytest.mark.slow_variants(
    "a sum of terms and a kernel of its own-imputed",
    "a sum of terms and a kernel of its own-embedded",
    "factors of both signs-imputed",
    "factors of both signs-embedded",
    "an RBF kernel-embedded",
    "an RBF kernel-imputed",
)
@pytest.mark.parametrize("estimator", ["imputed", "embedded"])
@pytest.mark.parametrize("case", CASES)
def test_values_follow_the_definition(case, estimator):
    kernel, given, restricted = CASES[case]
    function = RKHSFunction(kernel, POINTS, ALPHA, 0.4)
    game = Observational(BACKGROUND, 0.01, given, estimator, landmarks=BACKGROUND[[0, 3, 9, 20, 25]])
    expected = landmark_values(
        function,
        0.4,
        restricted,
        BACKGROUND,
        np.asarray(game.landmarks),
        X,
        COALITIONS,
        0.01,
        embedded=estimator == "embedded",
    )
    np.testing.assert_allclose(game(function, X, COALITIONS), expected, **TOLERANCE)
    weights, rows = game.imputation_weights(function, X, COALITIONS), game.impute(function, X, COALITIONS)
    predictions = np.asarray(function(rows.reshape(-1, 3))).reshape(weights.shape)
    np.testing.assert_allclose(0.4 + (weights * (predictions - 0.4)).sum(-1), expected, **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["imputed", "embedded"])
def test_any_function_is_valued(estimator):
    def f(rows):
        return np.sin(rows[:, 1]) * rows[:, 2] + rows[:, 0]

    game = Observational(BACKGROUND, 0.01, SMOOTH, estimator, landmarks=6)
    expected = landmark_values(
        f,
        f(BACKGROUND).mean(),
        smooth_matrix,
        BACKGROUND,
        BACKGROUND[::5],
        X,
        COALITIONS,
        0.01,
        embedded=estimator == "embedded",
    )
    np.testing.assert_allclose(game(f, X, COALITIONS), expected, **TOLERANCE)


@pytest.mark.nightly_variants("1-29", "2097152-25")
@pytest.mark.slow
@pytest.mark.parametrize(("entries", "num_rows"), [(1, 29), (2**6, 26), (2**21, 25)])
def test_blocks_of_the_background_change_nothing(monkeypatch, entries, num_rows):
    """Blocks of 1, 7 and all rows. Each case has its own number of rows: no program of another case is taken."""
    monkeypatch.setattr(embeddings, "_MAX_ENTRIES", entries)
    background, function = BACKGROUND[:num_rows], RKHSFunction(MIXED, POINTS, ALPHA)
    game = Observational(background, 0.01, landmarks=2)
    args = matrix(MIXED), background, np.asarray(game.landmarks), X, COALITIONS, 0.01
    np.testing.assert_allclose(game(function, X, COALITIONS), landmark_values(function, 0.0, *args), **TOLERANCE)


OPTIONS = {
    "imputed": {},
    "raw": {"end_points": "raw"},
    "embedded": {"estimator": "embedded"},
    "another kernel": {"kernel": Matern12(1.5), "estimator": "embedded"},
}


@pytest.mark.nightly_variants("embedded", "raw", "another kernel")
@pytest.mark.slow_variants("raw", "embedded", "another kernel", "imputed")
@pytest.mark.parametrize("name", OPTIONS)
def test_with_the_whole_background_as_landmarks_the_game_is_exact(name):
    game = Observational(BACKGROUND, 0.01, **OPTIONS[name])
    function = RKHSFunction(SMOOTH + 0.3, POINTS, ALPHA, 0.4)
    low = dataclasses.replace(game, landmarks=BACKGROUND)
    # Explaining the background itself has a short cut in the exact game.
    exact = [np.asarray(game(function, rows, COALITIONS)) for rows in (X, BACKGROUND)]
    found = low(function, np.concatenate([X, BACKGROUND]), COALITIONS)
    np.testing.assert_allclose(found, np.concatenate(exact, axis=1), **TOLERANCE)
    np.testing.assert_allclose(low.base(function), game.base(function), rtol=1e-12)


@pytest.mark.slow_variants("0.01", "0.0001", "1e-06")
@pytest.mark.parametrize("regularization", [1e-2, 1e-4, 1e-6])
def test_crowded_landmarks_keep_the_game_exact(regularization):
    """With a jitter of 1e-10 the errors are 50 times as large as this bound. They are divided by m times the ridge."""
    game = Observational(CROWDED, regularization)
    function = RKHSFunction(SMOOTH + 0.3, POINTS, ALPHA, 0.4)
    found = dataclasses.replace(game, landmarks=CROWDED)(function, X, COALITIONS)
    np.testing.assert_allclose(found, game(function, X, COALITIONS), rtol=0, atol=1e-10 / regularization)


@pytest.mark.slow
def test_each_draw_has_its_own_features():
    scales = jnp.asarray([[LENGTHSCALE, 0.8 * LENGTHSCALE]])
    draws = RKHSFunction.over_draws(RBF(lengthscale=scales), POINTS, ALPHA, 0.4, batch_shape=(1, 2))
    game = Observational(BACKGROUND, 0.01, landmarks=5)
    values = eqx.filter_jit(game)(draws, X, jnp.asarray(COALITIONS))
    for i in range(2):
        single = RKHSFunction(RBF(lengthscale=np.asarray(scales[0, i])), POINTS, ALPHA, 0.4)
        np.testing.assert_allclose(values[0, i], game(single, X, COALITIONS), **TOLERANCE)


@pytest.mark.slow
def test_a_background_of_single_precision_is_valued_in_double_precision():
    function = RKHSFunction(SMOOTH, POINTS, ALPHA, 0.4)
    single = np.asarray(BACKGROUND, np.float32)
    values = Observational(single, 0.01, landmarks=5)(function, X, COALITIONS)
    expected = Observational(single.astype(float), 0.01, landmarks=5)(function, X, COALITIONS)
    assert values.dtype == expected.dtype
    np.testing.assert_allclose(values, expected, rtol=1e-3)  # the landmarks' matrix has single precision


@pytest.mark.slow
def test_the_covariance_takes_the_weights_in_low_rank():
    """Against all pairs of imputed rows, with the oracle's weights in the place of the game's."""
    game = Observational(BACKGROUND, 0.01, SMOOTH, landmarks=5)
    found = shapley_covariance(game, SMOOTH, X[:1])
    weights = np.full((8, 30), 1 / 30)
    for i, mask in enumerate(COALITIONS[1:-1], 1):
        weights[i] = landmark_weights(smooth_matrix, BACKGROUND, BACKGROUND[::6], X[:1], mask, 0.01)[:, 0]
    rows = np.where(COALITIONS[:, None], X[0], BACKGROUND[None])
    atoms = (np.asarray(shapley_values_from_table(np.eye(8)))[:, :, None] * weights).reshape(3, -1)
    flat = rows.reshape(-1, 3)
    expected = atoms @ np.asarray(SMOOTH(flat, flat)) @ atoms.T
    np.testing.assert_allclose(found[0], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_the_regularization_of_least_loss_is_chosen():
    """Against leaving points out one by one; the kernels of both groups of features are approximated."""
    z, b, grid, losses = BACKGROUND[:14], BACKGROUND[:14:3], [1e-4, 1e-2, 1.0], np.zeros(3)
    for k, regularization in enumerate(grid):
        for mask in COALITIONS[1:-1]:
            present, absent = (nystrom(z[:, part], b[:, part], LENGTHSCALE[part]) for part in (mask, ~mask))
            for i in range(14):
                rest = np.arange(14) != i
                system = present[np.ix_(rest, rest)] + 14 * regularization * np.eye(13)
                w = np.linalg.solve(system, present[rest, i])
                losses[k] += absent[i, i] - 2 * w @ absent[rest, i] + w @ absent[np.ix_(rest, rest)] @ w
    chosen = Observational.select(z, RBF(lengthscale=LENGTHSCALE), grid=grid, landmarks=b)
    assert float(chosen.regularization) == grid[int(np.argmin(losses))]
    assert len(np.unique(losses)) == 3


def nystrom(z, b, lengthscale):
    cross = rbf(z, b, lengthscale)
    return cross @ np.linalg.pinv(rbf(b, b, lengthscale), rcond=1e-13, hermitian=True) @ cross.T


@pytest.mark.nightly
def test_the_error_is_that_of_the_values():
    function = RKHSFunction(SMOOTH, POINTS, ALPHA, 0.4)
    game = Observational(BACKGROUND, 0.01, landmarks=5)
    exact = np.asarray(Observational(BACKGROUND, 0.01)(function, X, COALITIONS))
    errors = (np.asarray(game(function, X, COALITIONS)) - exact)[1:-1]
    expected = np.sqrt(np.mean(errors**2) / np.mean((exact - exact[0])[1:-1] ** 2))
    found = landmark_error(game, function, X)
    np.testing.assert_allclose(found.relative, expected, rtol=1e-9)
    assert found[1:] == (5, 30, 6)
    more = [landmark_error(Observational(BACKGROUND, 0.01, landmarks=b), function, X).relative for b in (2, 12, 30)]
    assert more[0] > 2 * expected and more[1] < expected / 2 and more[2] < 1e-7
    # Of 25 points that are not landmarks, 9 at even steps.
    assert landmark_error(game, function, X, num_rows=9, num_coalitions=3, rng_key=jax.random.key(0))[1:] == (5, 9, 3)
    assert landmark_error(game, lambda z: np.ones(len(z)), X).relative == 0.0


@pytest.mark.slow
def test_the_landmarks_and_their_error_are_recorded():
    function = RKHSFunction(SMOOTH, POINTS, ALPHA, 0.4)
    options = {"value_function": "observational", "background": BACKGROUND, "regularization": 0.01, "landmarks": 5}
    explanation = kpp.explain(function, X, **options)
    game = Observational(BACKGROUND, 0.01, landmarks=5)
    assert explanation.attrs["landmarks"] == 5 and explanation.attrs["background_size"] == 30
    assert explanation.attrs["landmark_error"] == landmark_error(game, function, X).relative
    assert not {"landmarks", "landmark_error"} & set(kpp.explain(function, X, **{**options, "landmarks": None}).attrs)
    np.testing.assert_allclose(explanation.values, shapley_values(game, function, X), rtol=1e-9)


def test_too_large_a_background_is_refused_with_advice():
    game = Observational(np.zeros((10**7, 1)))
    with pytest.raises(ValueError, match=r"m = 10000000 background points needs .* `landmarks=200`"):
        game(RKHSFunction(RBF(), np.zeros((1, 1)), np.ones(1)), np.ones((1, 1)), [[True]])


@pytest.mark.parametrize(
    ("landmarks", "message"),
    [
        (0, r"`landmarks` must be between 1 and 30 \(the number of background points\), got 0"),
        (31, r"`landmarks` must be between 1 and 30 \(the number of background points\), got 31"),
        (2.5, "`landmarks` must be an integer"),
        (np.ones((2, 4)), "`landmarks` must have 3 columns"),
    ],
)
def test_landmarks_are_checked(landmarks, message):
    with pytest.raises(ValueError, match=message):
        Observational(BACKGROUND, landmarks=landmarks)


def test_an_exact_game_has_no_error_to_tell():
    function = RKHSFunction(SMOOTH, POINTS, ALPHA)
    with pytest.raises(ValueError, match="`value_function` must have landmarks"):
        landmark_error(Observational(BACKGROUND), function, X)
    with pytest.raises(TypeError, match="`value_function` must be"):
        landmark_error(Interventional(BACKGROUND), function, X)


@pytest.mark.nightly
def test_values_converge_to_the_conditional_expectations():
    """For Gaussian features they have a closed form. Four times as many rows should divide the error by about 1.5."""
    rng = np.random.default_rng(0)
    covariance = 0.6 + 0.4 * np.eye(4)
    points, x = (rng.multivariate_normal(np.zeros(4), covariance, size) for size in (20, 10))
    function = RKHSFunction(RBF(lengthscale=np.full(4, 2.0)), points, rng.normal(size=20), 0.5)
    proper = all_coalitions(4)[1:-1]
    truth = gaussian_conditional_values(function, covariance, x, proper)
    errors = []
    for size in (500, 2000, 8000):
        background = rng.multivariate_normal(np.zeros(4), covariance, size)
        values = Observational(background, 1e-4, landmarks=100)(function, x, proper)
        errors.append(np.sqrt(np.mean((values - truth) ** 2)) / truth.std())
    assert errors[1] < 0.8 * errors[0] and errors[2] < 0.8 * errors[1] and errors[2] < 0.1, errors
