r"""The gradient of the loss of held-out matches in the hyperparameters, by implicit differentiation.

The coefficients solve :math:`F(\theta, \alpha) = 0`. With the loss L of held-out matches,

.. math:: \frac{dL}{d\theta} = \frac{\partial L}{\partial \theta}
    - v^\top \frac{\partial F}{\partial \theta}, \qquad
    \Bigl(\frac{\partial F}{\partial \alpha}\Bigr)^\top v = \frac{\partial L}{\partial \alpha}

so that a gradient in any number of hyperparameters takes one linear system more than the fit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float
from scipy.optimize import minimize

from kpp.preferences import Matches
from kpp.priors import leaf_paths
from kpp_models.tables.machines.grid_search import Selection, put_values

Machine = TypeVar("Machine", bound=eqx.Module)

# The largest factor by which a hyperparameter may change.
_RANGE = 1e3


def held_out_gradient(
    model: Any, values: Mapping[str, Array], train: Matches, test: Matches
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Return the loss of held-out matches and its derivative in each hyperparameter, given by path.

    The model is a `PreferenceRidge`, or another with its methods for the equation of the coefficients.
    """
    fitted = put_values(model, values)
    solver = fitted.solver(train)
    coefficients = fitted.coefficients(solver, train)

    def latent(values: Mapping[str, Array], coefficients: Array, matches: Matches) -> Array:
        kernel = put_values(model, values).kernel
        return dataclasses.replace(solver.pairs, kernel=kernel, coefficients=coefficients)(matches.inputs)

    def loss(values: Mapping[str, Array], coefficients: Array) -> Array:
        return model.loss(test, latent(values, coefficients, test))

    def residual(values: Mapping[str, Array]) -> Array:
        ridge = train.num_matches * put_values(model, values).regularization
        return model.residual(train, latent(values, coefficients, train), ridge * coefficients)

    found, (direct, through) = jax.value_and_grad(loss, (0, 1))(dict(values), coefficients)
    adjoint = model.solve_adjoint(solver, train, coefficients, through)
    (indirect,) = jax.vjp(residual, dict(values))[1](adjoint)
    return found, {path: direct[path] - indirect[path] for path in values}


def descend(model: Machine, paths: Sequence[str], train: Matches, test: Matches, max_steps: int) -> Selection[Machine]:
    """Minimize the loss of held-out matches by L-BFGS in the logarithms of hyperparameters."""
    known = dict(zip(leaf_paths(model), jax.tree.leaves(model), strict=True))
    if not paths or set(paths) - set(known):
        raise ValueError(f"`paths` must name leaves of the model, {list(known)}; got {list(paths)}")
    sizes = [np.size(known[path]) for path in paths]
    start = np.concatenate([np.ravel(known[path]) for path in paths])
    if not (start > 0).all():
        raise ValueError(f"`paths` must lead to positive numbers, got {start[start <= 0][0]:g} among their values")

    def values(logarithms: np.ndarray) -> dict[str, Array]:
        parts = np.split(np.exp(logarithms), np.cumsum(sizes)[:-1])
        return {path: jnp.reshape(part, np.shape(known[path])) for path, part in zip(paths, parts, strict=True)}

    losses: list[float] = []

    def objective(logarithms: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = held_out_gradient(model, values(logarithms), train, test)
        losses.append(float(loss))
        return losses[-1], np.concatenate([np.ravel(gradient[path]) for path in paths]) * np.exp(logarithms)

    width = np.log(_RANGE)
    bounds = [(center - width, center + width) for center in np.log(start)]
    found = minimize(objective, np.log(start), jac=True, bounds=bounds, options={"maxiter": max_steps})
    chosen = {path: np.asarray(value) for path, value in values(found.x).items()}
    scores = xr.DataArray(losses, dims="evaluation", name="held_out_loss")
    return Selection(put_values(model, chosen), chosen, scores)
