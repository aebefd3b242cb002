"""Selection of the regularization of an embedding, by cross-validation or by evidence."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp import linalg
from kpp.embeddings.means.conditional import AbstractRegressionEmbedding
from kpp.foundation.validation import as_targets, check_rng_key, count, one_of
from kpp.typing import Numbers, RngKey

_GRID = np.logspace(-7, 0, 15)
_CRITERIA = ("loss", "evidence")


class SelectedRegularization(NamedTuple):
    """The result of `select_regularization`.

    Attributes:
        embedding: The embedding with the regularization that has the lowest loss.
        grid: The regularizations tried.
        losses: The mean loss of each regularization, or its negative log evidence.
    """

    embedding: AbstractRegressionEmbedding
    grid: np.ndarray
    losses: np.ndarray


def select_regularization(
    embedding: AbstractRegressionEmbedding,
    grid: Numbers | None = None,
    *,
    criterion: str = "loss",
    num_folds: int | None = None,
    rng_key: RngKey | None = None,
) -> SelectedRegularization:
    r"""Choose the regularization of a conditional or deconditional embedding.

    The loss is `AbstractRegressionEmbedding.leave_one_out_losses`: the squared error of the prediction of an input's
    element from the other inputs. For bags, whole bags are left out, :math:`\|\hat\mu_j - \hat\mu^{(-j)}_{X|y_j}\|^2`.
    In the mean loss a bag has the same multiplicity as in the estimator: once, or once per point for the replicated
    estimator. The evidence is `AbstractRegressionEmbedding.log_evidence`; it uses all samples.

    Args:
        embedding: The embedding; its own regularization is ignored.
        grid: The values to try, positive; by default 15 from 1e-7 to 1.
        criterion: "loss" for cross-validation, "evidence" for the highest evidence.
        num_folds: The number of folds; by default each input is a fold, which does not take more time.
        rng_key: A JAX random key for the split into folds; not needed without `num_folds`.

    Returns:
        The embedding with the best value, and the mean loss, or the negative log evidence, of each.

    Raises:
        ValueError: If a value is not positive, the criterion is unknown or cannot use folds, or `num_folds` is not
            between 2 and the number of inputs.
    """
    values = as_targets(_GRID if grid is None else grid, name="grid")
    if not bool((values > 0).all()):
        raise ValueError(f"`grid` must hold positive numbers, got {float(values.min()):g} among them")
    one_of(criterion, "criterion", _CRITERIA)
    if criterion == "evidence" and num_folds is not None:
        raise ValueError(f"`num_folds` must be None for the criterion 'evidence', got {num_folds}")
    folds = None if num_folds is None else _split(embedding.num_inputs, num_folds, rng_key)
    losses = _losses(embedding, values, folds, criterion)
    if not bool(jnp.isfinite(losses).all()):
        raise linalg.FactorizationError(f"the kernel matrix of the inputs is singular with {float(values.min()):g}")
    best = eqx.tree_at(lambda tree: tree.regularization, embedding, values[jnp.argmin(losses)])
    return SelectedRegularization(best, np.asarray(values), np.asarray(losses))


@eqx.filter_jit
def _losses(
    embedding: AbstractRegressionEmbedding, grid: Array, folds: list[Array] | None, criterion: str
) -> Float[Array, " values"]:
    def loss(value: Array) -> Array:
        changed = eqx.tree_at(lambda tree: tree.regularization, embedding, value)
        if criterion == "evidence":
            return -changed.log_evidence()
        losses = changed.leave_one_out_losses() if folds is None else changed.held_out_losses(folds)
        return jnp.average(losses, weights=changed.multiplicity)

    return jax.lax.map(loss, grid)  # one factorization in memory at a time


def _split(num_inputs: int, num_folds: int, rng_key: RngKey | None) -> list[Array]:
    count(num_folds, "num_folds", 2, most=num_inputs, most_is="the number of inputs")
    order = np.asarray(jax.random.permutation(check_rng_key(rng_key), num_inputs))
    return [jnp.asarray(fold) for fold in np.array_split(order, num_folds)]
