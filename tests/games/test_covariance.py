"""Covariances of interventional Shapley values: reference numbers, the definition applied twice, and their laws."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import kpp
from kpp.games import Baseline, Interventional, shapley_covariance, shapley_values
from kpp.games.toolkit import Players
from kpp.kernels import RBF, Matern32

TOLERANCE = {"rtol": 1e-7, "atol": 1e-10}


def posterior_of(kernel, points, targets, noise_variance):
    """The posterior of a regression, by an explicit inverse."""
    covariance = np.asarray(eqx.filter_jit(kernel)(points, points)) + noise_variance * np.eye(len(points))
    root = np.linalg.cholesky(np.linalg.inv(covariance))
    return kpp.GPPosterior(kpp.RKHSFunction(kernel, points, np.linalg.solve(covariance, targets)), root)


@pytest.fixture(scope="module")
def posterior(data):
    return posterior_of(RBF(jnp.array([0.7, 1.0, 1.6, 2.0]), 1.7), data["X"], data["alpha"], 0.3)


@pytest.mark.slow
def test_reference_numbers(vectors):
    """Of an independent program that conditions on all imputed rows."""
    v = vectors("gp_shapley")
    game, x = Interventional(v["in_Z"]), np.stack([v["in_x"], v["in_xp"]])
    kernel = RBF(jnp.asarray(v["in_ls"]), v["in_signal_var"])
    law = posterior_of(kernel, v["in_X"], v["in_y"], float(v["in_noise_var"]))
    prior = kpp.GPPosterior(
        kpp.RKHSFunction(RBF(kernel.lengthscale, np.ones(())), v["in_X"], np.zeros(6)), np.zeros((6, 6))
    )
    np.testing.assert_allclose(shapley_values(game, law.mean, x)[0], v["out_mean"], **TOLERANCE)
    np.testing.assert_allclose(shapley_covariance(game, law, x, x)[0, 0], v["out_cov"], **TOLERANCE)
    across = shapley_covariance(game, prior, x, x)[0, 1]
    np.testing.assert_allclose(across, v["out_prior_cov_x_xp_unit_var"], **TOLERANCE)


def by_definition(brute_force, kernel, x, other, background):
    """The definition applied to the kernel as a function of its first argument, then to that of its second."""

    matrix = eqx.filter_jit(kernel)

    def values_at_x(points):
        return brute_force(lambda rows: matrix(rows, points), x, background).T

    return brute_force(values_at_x, other, background).T


@pytest.mark.slow
def test_the_definition(kernel, data, brute_force):
    background, (x, other) = data["Z"], data["x"][:2]
    expected = by_definition(brute_force, kernel, x, other, background)
    across = shapley_covariance(Interventional(background), kernel, x[None], other[None])
    np.testing.assert_allclose(across[0, 0], expected, rtol=1e-10, atol=1e-12 * np.abs(expected).max())


@pytest.mark.slow
def test_any_other_kernel_goes_by_enumeration(data, brute_force):
    kernel, background, x = Matern32(1.3), data["Z"], data["x"][0]
    expected = by_definition(brute_force, kernel, x, x, background)
    np.testing.assert_allclose(shapley_covariance(Interventional(background), kernel, x[None])[0], expected, atol=1e-12)


@pytest.mark.slow
def test_across_the_same_points(posterior, data, brute_force):
    """Each pair is computed once and mirrored."""
    game, x = Interventional(data["Z"]), data["x"]
    across = np.asarray(shapley_covariance(game, posterior, x, x))
    expected = by_definition(brute_force, posterior.covariance, x[0], x[2], data["Z"])
    np.testing.assert_allclose(across[0, 2], expected, atol=1e-12)
    np.testing.assert_allclose(across[2, 0], across[0, 2].T, atol=1e-14)
    np.testing.assert_allclose(across[np.arange(3), np.arange(3)], shapley_covariance(game, posterior, x), atol=1e-13)
    joint = across.transpose(0, 2, 1, 3).reshape(12, 12)
    assert np.linalg.eigvalsh(joint).min() > -1e-12  # they are covariances


@pytest.mark.slow
def test_the_whole_law_is_efficient(posterior, data):
    """All players together vary as the prediction less the mean prediction over the background does."""
    x, background = data["x"], data["Z"]
    rows = jnp.concatenate([jnp.asarray(x), jnp.asarray(background)])
    contrast = np.concatenate([np.eye(3), np.full((3, 5), -1 / 5)], axis=1)
    expected = contrast @ np.asarray(posterior.covariance(rows, rows)) @ contrast.T
    across = shapley_covariance(Interventional(background), posterior, x, x)
    np.testing.assert_allclose(across.sum(axis=(2, 3)), expected, atol=1e-12)


@pytest.mark.slow
def test_groups_play_as_one(posterior, data, brute_force):
    """A group of features is the feature of a game with one more feature code: the definition over unions."""
    groups, background, x = {"pair": [0, 2]}, data["Z"], data["x"][0]
    members = np.array([[0, 2], [1, 1], [3, 3]])

    def values_of(f):
        """The definition on codes: 0 takes x, row b > 0 of the background else."""

        def coded(codes):
            sources = np.concatenate([x[None], background])
            rows = np.empty((len(codes), 4))
            for player, features in enumerate(members):
                rows[:, features] = sources[codes[:, player].astype(int)][:, features]
            return f(rows)

        return brute_force(coded, np.zeros(3), np.repeat(np.arange(1.0, 6.0)[:, None], 3, axis=1))

    expected = values_of(lambda points: values_of(lambda rows: posterior.covariance(rows, points)).T)
    found = shapley_covariance(Interventional(background), posterior, x[None], groups=groups)[0]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.slow
def test_draws_are_taken_one_by_one(data):
    each = [posterior_of(RBF(jnp.full(4, scale), 1.7), data["X"], data["alpha"], 0.3) for scale in (0.8, 1.5)]
    kernel = RBF(jnp.stack([law.mean.kernel.lengthscale for law in each]), jnp.full(2, 1.7))
    mean = kpp.RKHSFunction(kernel, data["X"], jnp.stack([law.mean.coefficients for law in each]), 0.0, (2,))
    draws = kpp.GPPosterior(mean, jnp.stack([law.root for law in each]))
    game, x = Interventional(data["Z"]), data["x"]
    found = shapley_covariance(game, draws, x)
    for i, law in enumerate(each):
        np.testing.assert_allclose(found[i], shapley_covariance(game, law, x), atol=1e-13)


@pytest.mark.slow
def test_factors_that_underflow():
    """Points so far apart that factors are 0, or nearly: finite, and the efficient law still."""
    background = np.zeros((5, 4))
    background[:3] = [[0.0, 0.0, 0.0, 30.0], [37.0, 0.0, 0.0, 0.1], [38.0, 1.0, 0.2, 1.0]]
    x, other = np.array([[0.1, 400.0, 0.2, 0.3]]), np.array([[0.2, 0.1, 0.3, 29.0]])
    kernel = RBF(jnp.ones(4), 1.7)
    found = shapley_covariance(Interventional(background), kernel, x, other)[0, 0]
    first, second = np.concatenate([x, background]), np.concatenate([other, background])
    contrast = np.array([1.0, *np.full(5, -1 / 5)])
    np.testing.assert_allclose(found.sum(), contrast @ np.asarray(kernel(first, second)) @ contrast, rtol=1e-12)
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            (Baseline(), RBF(1.0), [[0.0] * 4]),
            TypeError,
            "`value_function` must be an AbstractImputation.*got Baseline",
        ),
        (
            (None, kpp.RKHSFunction(RBF(1.0), [[0.0] * 4], [1.0]), [[0.0] * 4]),
            TypeError,
            "`process` must be .* got RKHS",
        ),
        ((None, RBF(1.0), [[0.0] * 3]), ValueError, "`x`"),
        ((None, RBF(1.0), [[0.0] * 4], [[0.0] * 5]), ValueError, "`x_other`"),
    ],
)
def test_refuses(arguments, error, message, data):
    game, *rest = arguments
    with pytest.raises(error, match=message):
        shapley_covariance(Interventional(data["Z"]) if game is None else game, *rest)


def test_refuses_players_that_leave_out_a_feature(data):
    players = Players(("first", "last"), ((0, 1), (3,)), 4)
    with pytest.raises(ValueError, match=r"`groups` must hold every feature .* without the features \[2\]"):
        shapley_covariance(Interventional(data["Z"]), RBF(1.0), data["x"], groups=players)


def test_refuses_to_enumerate_many_players():
    points = np.eye(13)
    with pytest.raises(ValueError, match="by enumeration only, for at most 12 players, got 13; group features"):
        shapley_covariance(Interventional(points), Matern32(1.0), points)
