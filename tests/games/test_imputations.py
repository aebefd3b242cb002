"""Imputations: averages over rows for kernels that are no products, and how far nearby points' values are apart."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.functions import RKHSFunction
from kpp.games import Interventional, Observational, all_coalitions, shapley_values_from_table
from kpp.kernels import RBF, Matern12

COALITIONS = all_coalitions(3)


def test_interventional_values_of_other_kernels_are_averages(data):
    """Draws and several outputs at once, inside jit."""
    background, x = data["Z"][:, :3], data["x"][:, :3]
    coefficients = np.stack([data["alpha"], data["alpha"][::-1]], axis=-1)
    lengthscales = np.array([[0.9, 1.7]])
    draws = RKHSFunction.over_draws(
        Matern12(lengthscale=jnp.asarray(lengthscales)), data["X"][:, :3], coefficients, 0.2, batch_shape=(1, 2)
    )
    values = eqx.filter_jit(Interventional(background))(draws, x, jnp.asarray(COALITIONS))
    assert values.shape == (1, 2, 8, 3, 2)
    rows = np.where(COALITIONS[:, None, None], x[None, :, None], background[None, None])
    distances = np.sqrt(((rows[..., None, :] - data["X"][:, :3]) ** 2).sum(-1))
    for i, lengthscale in enumerate(lengthscales[0]):
        predictions = np.exp(-distances / lengthscale) @ coefficients + 0.2
        np.testing.assert_allclose(values[0, i], predictions.mean(axis=2), rtol=1e-10)


@pytest.mark.slow_variants("False", "True")
@pytest.mark.parametrize("observational", [False, True])
def test_nearby_points_have_nearby_shapley_functionals(observational):
    r"""The two bounds of the RKHS-SHAP paper, theorem 6, for RBF kernels, in random problems.

    :math:`\|\phi_x - \phi_{x'}\|^2` is at most :math:`4 (1 - e^{-d\delta/2\ell^2})` for interventional values, and
    :math:`8 M_\Gamma (1 - e^{-d\delta/2\ell^2})` for observational ones, with :math:`M_\Gamma` the largest squared norm
    of a conditional mean embedding operator. With raw end points, as the theorem has them.
    """
    rng = np.random.default_rng(1)
    for _ in range(40):
        lengthscale, step, regularization = np.exp(rng.normal(size=3) * [0.5, 1.0, 1.0] + [0, -1.5, -3])
        background = rng.normal(size=(6, 3))
        first = rng.normal(size=3)
        second = first + step * rng.uniform(-1, 1, size=3)
        kernel = RBF(lengthscale=jnp.full(3, lengthscale))
        game = Interventional(background)
        if observational:
            game = Observational(background, regularization, kernel=kernel, end_points="raw")
        change = _change(game, kernel, jnp.asarray(np.stack([first, second])))
        delta = np.max((first - second) ** 2)
        bound = 4 * (1 - np.exp(-3 * delta / (2 * lengthscale**2)))
        if observational:
            bound *= 2 * max(_squared_norm(background, mask, lengthscale, regularization) for mask in COALITIONS)
        assert np.all(change <= bound)


@eqx.filter_jit
def _change(game, kernel, x):
    """The squared distances of the Shapley functionals of two points, one a feature."""
    weights, rows = game.imputation_weights(None, x, COALITIONS), game.impute(None, x, COALITIONS)
    signed = weights.at[:, 1].multiply(-1.0).reshape(8, -1)
    blocks = jnp.zeros((8, 8, signed.shape[1])).at[jnp.arange(8), jnp.arange(8)].set(signed).reshape(8, -1)
    functionals = shapley_values_from_table(blocks)
    return jnp.einsum("ja,ab,jb->j", functionals, kernel.gram(rows.reshape(-1, 3)), functionals)


def _squared_norm(background, mask, lengthscale, regularization):
    """The squared norm of the conditional mean embedding of one coalition as a function, tr(A G A K)."""

    def gram(part):
        z = background[:, part] / lengthscale
        return np.exp(-0.5 * ((z[:, None] - z[None]) ** 2).sum(-1))

    inverse = np.linalg.inv(gram(mask) + len(background) * regularization * np.eye(len(background)))
    return np.trace(inverse @ gram(~mask) @ inverse @ gram(mask))
