"""Computations for each draw of a posterior: compiled once, in blocks of draws, in bounded memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from scipy.special import logsumexp

from kpp.foundation.validation import count
from kpp.runtime.batching import NUM_BLOCKS, map_blocks, progress_bar
from kpp.runtime.memory import check_count
from kpp.runtime.threads import num_cores, one_blas_thread
from kpp.typing import AnyArray


def flatten_draws(draws: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Join the axes chain and draw: (chain, draw, ...) -> (chain * draw, ...)."""
    return {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}


def unflatten_draws(values: PyTree, shape: tuple[int, int]) -> PyTree:
    """Split the leading axis of every leaf into (chain, draw)."""
    return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), values)


class DrawMap:
    """A function of one draw, applied to many draws.

    The function takes one draw (site -> value), its number (an integer array) and the shared arguments, and returns a
    pytree of arrays. It is traced once per combination of array shapes, and again for other values of arguments that
    are not arrays. `batch_size` draws are computed at the same time in each thread, by default one after the other: on
    a CPU this is as fast and needs the least memory.
    """

    def __init__(self, f: Callable[[dict[str, jax.Array], jax.Array, Any], Any], batch_size: int | None = None) -> None:
        if batch_size is not None:
            count(batch_size, "batch_size")

        self._f = f

        def run(draws: dict[str, jax.Array], numbers: jax.Array, shared: PyTree) -> tuple[Any, jax.Array]:
            def one(item: tuple[dict[str, jax.Array], jax.Array]) -> tuple[Any, jax.Array]:
                result = f(item[0], item[1], shared)
                return result, _has_nan(result)

            return jax.lax.map(one, (draws, numbers), batch_size=batch_size)

        self._run = eqx.filter_jit(run)

    @one_blas_thread()
    def __call__(
        self, draws: Mapping[str, jax.Array], numbers: jax.Array, shared: PyTree, *, label: str | None = None
    ) -> Any:
        """Apply the function to draws by site with a leading axis of length s, and stack the results along it.

        Raises FactorizationError if a matrix could not be factorized for a draw, and FloatingPointError for other NaNs.
        """
        results, bad = self._map(dict(draws), numbers, shared, label)
        self._refuse_nan(np.asarray(bad), draws, numbers, shared)
        return results

    def _map(
        self, draws: dict[str, jax.Array], numbers: jax.Array, shared: PyTree, label: str | None
    ) -> tuple[Any, AnyArray]:
        total = numbers.shape[0]
        if total < 2 * NUM_BLOCKS:
            return self._run(draws, numbers, shared)
        size = math.ceil(total / NUM_BLOCKS)

        def run_block(block: tuple[dict[str, jax.Array], jax.Array]) -> tuple[Any, jax.Array]:
            return self._run(*block, shared)

        with progress_bar(math.ceil(total / size), label or "", show=label is not None) as bar:
            return map_blocks(run_block, (draws, numbers), size, bar=bar, threads=num_cores())

    def _refuse_nan(self, bad: np.ndarray, draws: Mapping[str, jax.Array], numbers: jax.Array, shared: PyTree) -> None:
        """Raise if a result is NaN. The first bad draw is computed again untraced, to get the message of its error."""
        if not bad.any():
            return
        first = int(np.argmax(bad))
        draw = {name: value[first] for name, value in draws.items()}
        self._f(draw, numbers[first], shared)
        values = {name: value.tolist() for name, value in draw.items()}
        raise FloatingPointError(f"{bad.sum()} of {bad.size} draws give NaN, the first at {values}")


def _has_nan(values: PyTree) -> jax.Array:
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(values)]
    found = [jnp.any(jnp.isnan(leaf)) for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.any(jnp.stack(found)) if found else jnp.asarray(False)


@functools.cache
def draw_map(f: Callable[[dict[str, jax.Array], jax.Array, Any], Any], batch_size: int | None = None) -> DrawMap:
    """Return the map of a module's function; there is one per function, and it keeps its compiled programs."""
    return DrawMap(f, batch_size)


def pseudo_evidence(fit: Any) -> float:
    r"""Return the logarithm of the leave-one-out density of the targets, averaged over the draws of a fit.

    .. math:: \log \frac{1}{S} \sum_s \prod_i p(t_i \mid t_{-i}, \theta_s)

    The difference between two fits to the same targets is a log pseudo Bayes factor. It compares models whose evidence
    cannot be compared, such as Bayesian embeddings with different kernels of the outcome.

    Args:
        fit: A `kpp.Fit` with one pointwise log likelihood, such as a fit of `kpp_models.BayesIMP`.

    References:
        Geisser and Eddy, A predictive approach to model selection, 1979.
    """
    (pointwise,) = fit.idata["log_likelihood"].data_vars.values()
    totals = np.asarray(pointwise).reshape(fit.num_chains * fit.num_draws, -1).sum(axis=1)
    return float(logsumexp(totals) - np.log(len(totals)))  # a mean of densities, not of their logarithms


def num_rows(data: Any) -> int:
    """Return the length of the first array of some data or points."""
    return next((leaf.shape[0] for leaf in jax.tree.leaves(data) if np.ndim(leaf)), 1)


def check_draws(num: int, name: str, data: dict[str, Any]) -> None:
    """Raise ValueError if draws, each with a log density and a replicate of each row, do not fit into memory."""
    check_count(num, name, 2 * num_rows(data))
