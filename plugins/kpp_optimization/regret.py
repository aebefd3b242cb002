"""The regret of searches, and replications of searches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike

from kpp.foundation.validation import as_finite_array, count
from kpp.lazy.tasks import map_numbers
from kpp.typing import RngKey
from kpp_optimization.search import Search

T = TypeVar("T")


def regret(search: Search, truth: ArrayLike) -> Float[np.ndarray, " n"]:
    r"""Return the simple regret of a search after each query.

    .. math:: r_t = f(\hat x_t) - \min_x f(x)

    with :math:`\hat x_t` the incumbent after t queries; for a search that maximizes, :math:`\max_x f(x) - f(\hat x_t)`.

    Args:
        search: The search.
        truth: f at its candidates, without noise, (p,).

    Returns:
        The regrets, at least 0, (n,), in units of the objective.

    Raises:
        ValueError: If `truth` does not have one value per candidate.
    """
    values = np.asarray(as_finite_array(truth, "truth"))
    if values.shape != (len(search.candidates),):
        raise ValueError(
            f"`truth` must have shape ({len(search.candidates)},), one value per candidate, got {values.shape}"
        )
    found = values[search.queries["incumbent"].to_numpy()]
    return found - values.min() if search.direction == "minimize" else values.max() - found


def regrets(searches: Mapping[str, Sequence[Search]], truth: ArrayLike) -> xr.DataArray:
    """Return the regrets of searches from several priors, each with the same number of replications.

    A search that stopped early keeps its last regret.

    Args:
        searches: A mapping from a name for each prior to its searches, one per replication.
        truth: The objective at the candidates, without noise, (p,).

    Returns:
        The regrets, with dims (prior, replication, query).

    Raises:
        ValueError: If `searches` is empty, or priors have different numbers of searches.
    """
    counts = {name: len(found) for name, found in searches.items()}
    if not counts or len(set(counts.values())) > 1 or 0 in counts.values():
        raise ValueError(f"`searches` must have the same number of searches for each prior, at least one, got {counts}")
    curves = {name: [regret(search, truth) for search in found] for name, found in searches.items()}
    length = max(len(curve) for found in curves.values() for curve in found)
    padded = [[np.pad(curve, (0, length - len(curve)), mode="edge") for curve in found] for found in curves.values()]
    coords = {"prior": list(curves), "replication": np.arange(len(padded[0])), "query": np.arange(1, length + 1)}
    return xr.DataArray(np.asarray(padded), coords, ("prior", "replication", "query"), name="regret")


def replicate(
    rng_key: RngKey,
    run: Callable[[RngKey, int], T],
    num_replications: int,
    *,
    num_workers: int = 1,
    progress: bool = True,
) -> list[T]:
    """Run a function several times, each time with its own random key, in parallel if requested.

    If this process has a Dask client, the replications run on its workers, and otherwise in threads, which run in
    parallel because JAX and NumPy release the interpreter lock. The random keys, and so the results, are the same in
    all cases.

    Args:
        rng_key: A JAX random key.
        run: A function from a random key and the number of the replication (from 0) to any result, such as a `Search`.
        num_replications: How many times.
        num_workers: The number of threads; without effect if there is a Dask client.
        progress: Whether to show a progress bar.

    Returns:
        The results of the runs, in order.

    Raises:
        RuntimeError: If the scheduler of Dask is gone.
        TypeError: If `run` is not a function, or cannot be sent to a worker.
        ValueError: If a number is below 1.
        Exception: Any error of `run`, with a note that names the replication.
    """
    count(num_replications, "num_replications")
    count(num_workers, "num_workers")
    keys = jax.random.split(rng_key, num_replications)
    return map_numbers(
        lambda number: run(keys[number], number),
        num_replications,
        name="replication",
        label="replications",
        threads=num_workers,
        progress=progress,
    )
