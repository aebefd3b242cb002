"""Observational values: reference numbers, the definition for every coalition, solvers, estimators, draws."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.embeddings import ConditionalMeanEmbedding
from kpp.functions import RKHSFunction
from kpp.games import Observational, all_coalitions, shapley_values
from kpp.kernels import RBF, Matern12, Periodic, ProductKernel, median_heuristic
from oracles.kernels import rbf

TOLERANCE = {"rtol": 1e-7, "atol": 1e-10}
COALITIONS = all_coalitions(3)


@pytest.fixture(scope="module")
def problem(vectors):
    return vectors("rkhs_shap")


@pytest.fixture(scope="module")
def function(problem):
    return RKHSFunction(RBF(lengthscale=problem["in_ls"]), problem["in_X"], problem["in_alpha"])


def by_definition(f, constant, background, x, lengthscale, regularization, *, embedded=False):
    """Exact end points; conditional mean embeddings by one solve for each coalition, predictions of imputed rows."""
    table = []
    for mask in COALITIONS:
        matrix = rbf(background[:, mask], background[:, mask], lengthscale[mask])
        right = rbf(background[:, mask], x[:, mask], lengthscale[mask])
        weights = np.linalg.solve(matrix + len(background) * regularization * np.eye(len(background)), right)
        if mask.all() or not mask.any():
            weights = np.full_like(weights, 1 / len(background))
        values = []
        for point, column in zip(x, weights.T, strict=True):
            rows = background.copy()
            if not embedded or mask.all():
                rows[:, mask] = point[mask]
            values.append(constant + column @ (np.asarray(f(rows)) - constant))
        table.append(values)
    return np.array(table)


@pytest.mark.slow_variants("exact")
@pytest.mark.parametrize("end_points", ["exact", pytest.param("raw", marks=pytest.mark.slow)])
def test_reference_values(problem, function, end_points):
    game = Observational(problem["in_Z"], float(problem["in_eta"]), end_points=end_points)
    suffix = "" if end_points == "exact" else "_raw"
    values = game(function, problem["in_Xq"], COALITIONS)
    np.testing.assert_allclose(values, problem[f"out_v_obs{suffix}"], **TOLERANCE)
    np.testing.assert_allclose(game.base(function), problem[f"out_v_obs{suffix}"][0, 0], **TOLERANCE)
    phi = shapley_values(game, function, problem["in_Xq"])
    np.testing.assert_allclose(phi.T, problem[f"out_phi_obs{suffix}"], **TOLERANCE)


@pytest.mark.slow
def test_every_coalition_is_an_imputation(problem, function):
    game = Observational(problem["in_Z"], 0.05)
    x = problem["in_Xq"]
    expected = by_definition(function, 0.0, problem["in_Z"], x, problem["in_ls"], 0.05)
    weights, rows = game.imputation_weights(function, x, COALITIONS), game.impute(function, x, COALITIONS)
    predictions = np.asarray(function(rows.reshape(-1, 3))).reshape(weights.shape)
    np.testing.assert_allclose((weights * predictions).sum(-1), expected, rtol=1e-10)
    np.testing.assert_allclose(game(function, x, COALITIONS), expected, rtol=1e-10)


@pytest.mark.slow
def test_any_function_is_imputed(problem):
    """A plain function shrinks to its mean prediction; the kernel is the default one, with median lengthscales."""
    background, x = problem["in_Z"], problem["in_Xq"]

    def f(rows):
        return np.sin(rows[:, 0]) * rows[:, 1] + rows[:, 2] ** 2

    lengthscale = np.sqrt(3) * np.asarray(median_heuristic(background))
    for estimator in ("imputed", "embedded"):
        game = Observational(background, 0.05, estimator=estimator)
        constant = f(background).mean()
        expected = by_definition(f, constant, background, x, lengthscale, 0.05, embedded=estimator == "embedded")
        np.testing.assert_allclose(game(f, x, COALITIONS), expected, rtol=1e-9)


@pytest.mark.slow
def test_other_kernels_are_embedded(problem):
    """C.5: weighted predictions at the background, with a sub-kernel of one's own or the default one."""
    background, x = problem["in_Z"], problem["in_Xq"]
    function = RKHSFunction(Matern12(lengthscale=1.5, variance=2.0), problem["in_X"], problem["in_alpha"], 0.3)
    own = Observational(background, 0.05, kernel=RBF(lengthscale=problem["in_ls"], variance=3.0))
    expected = by_definition(function, 0.3, background, x, problem["in_ls"], 0.05, embedded=True)
    np.testing.assert_allclose(own(function, x, COALITIONS), expected, rtol=1e-9)
    weights = Observational(background, 0.05, kernel=function.kernel).imputation_weights(function, x, COALITIONS[5:6])
    columns = [0, 2]
    embedding = ConditionalMeanEmbedding(
        kernel=Matern12(),
        input_kernel=Matern12(lengthscale=1.5),
        inputs=background[:, columns],
        points=background[:, columns],
        regularization=0.05,
    )
    np.testing.assert_allclose(weights[0].T, embedding.weights(x[:, columns]), rtol=1e-9)


@pytest.mark.slow
def test_terms_are_added_up(problem, function):
    """A constant leaves the kernel of the embedding alone; the values of terms add up under one kernel."""
    game = Observational(problem["in_Z"], 0.05, kernel=function.kernel)
    x, alpha = problem["in_Xq"], problem["in_alpha"]
    other = ProductKernel((Periodic(), RBF(), RBF(lengthscale=2.0))) * 0.5
    parts = [
        game(RKHSFunction(kernel, problem["in_X"], alpha, 0.1), x, COALITIONS) for kernel in (function.kernel, other)
    ]
    both = game(RKHSFunction(function.kernel + other, problem["in_X"], alpha, 0.2), x, COALITIONS)
    np.testing.assert_allclose(both, sum(parts), rtol=1e-9, atol=1e-12)
    shifted = RKHSFunction(function.kernel + 0.7, problem["in_X"], alpha)
    assert eqx.tree_equal(Observational(problem["in_Z"]).kernel_for(shifted), function.kernel)


@pytest.mark.slow
def test_explaining_the_background_takes_a_short_cut(problem, function):
    background = np.asarray(problem["in_Z"])
    game, reversed_game = Observational(background, 0.05), Observational(background[::-1], 0.05)
    np.testing.assert_allclose(
        game(function, background, COALITIONS), reversed_game(function, background, COALITIONS), rtol=1e-10
    )


@pytest.mark.slow
def test_each_draw_has_its_own_embedding(problem):
    lengthscales = np.array([[[1.0, 1.5, 2.0], [0.7, 0.9, 1.3]]])
    draws = RKHSFunction.over_draws(
        RBF(lengthscale=jnp.asarray(lengthscales)), problem["in_X"], problem["in_alpha"], 0.4, batch_shape=(1, 2)
    )
    game = Observational(problem["in_Z"], 0.05)
    values = eqx.filter_jit(game)(draws, problem["in_Xq"], jnp.asarray(COALITIONS))
    for i in range(2):
        f = RKHSFunction(RBF(lengthscale=lengthscales[0, i]), problem["in_X"], problem["in_alpha"], 0.4)
        expected = by_definition(f, 0.4, problem["in_Z"], problem["in_Xq"], lengthscales[0, i], 0.05)
        np.testing.assert_allclose(values[0, i], expected, rtol=1e-9)


@pytest.mark.slow
def test_coalitions_in_threads_have_the_values_of_one_program():
    rng = np.random.default_rng(3)
    mixed = rng.permutation(all_coalitions(8))[:250]  # no multiple of the size of a block
    background, points = rng.normal(size=(7, 8)), rng.normal(size=(5, 8))
    draws = RKHSFunction.over_draws(
        RBF(lengthscale=jnp.asarray(rng.uniform(1, 3, (1, 2, 8)))),
        points,
        rng.normal(size=(1, 2, 5)),
        batch_shape=(1, 2),
    )
    game = Observational(background, 0.05)
    # Compiled by the caller, all coalitions are one program; the arithmetic is the same.
    expected = eqx.filter_jit(game)(draws, points[:3], jnp.asarray(mixed))
    np.testing.assert_allclose(game(draws, points[:3], mixed), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_the_regularization_of_least_loss_is_chosen(problem):
    """Against leaving points out one by one, over all proper coalitions."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(12, 1)) * [1, 1, 1] + 0.3 * rng.normal(size=(12, 3))
    grid, ls = [1e-4, 1e-2, 1.0], np.array([1.0, 1.2, 0.8])
    losses = np.zeros(3)
    for k, regularization in enumerate(grid):
        for mask in COALITIONS[1:-1]:
            present, absent = (rbf(z[:, part], z[:, part], ls[part]) for part in (mask, ~mask))
            for i in range(12):
                rest = np.arange(12) != i
                matrix = present[np.ix_(rest, rest)] + 12 * regularization * np.eye(11)
                w = np.linalg.solve(matrix, present[rest, i])
                losses[k] += absent[i, i] - 2 * w @ absent[rest, i] + w @ absent[np.ix_(rest, rest)] @ w
    chosen = Observational.select(z, RBF(lengthscale=ls), grid=grid)
    assert float(chosen.regularization) == grid[int(np.argmin(losses))]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"regularization": 0.0}, ValueError, "`regularization` must be positive"),
        ({"regularization": np.ones(2)}, ValueError, "`regularization` must be one number"),
        ({"estimator": "sampled"}, ValueError, "`estimator` must be one of"),
        ({"kernel": "rbf"}, TypeError, "`kernel` must be a kernel|Type-check error"),
    ],
)
def test_options_are_checked(problem, options, error, message):
    with pytest.raises(error, match=message):
        Observational(problem["in_Z"], **options)
