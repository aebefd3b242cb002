"""Search for the joint mode of all latent sites, with a check of convergence."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import numpyro.infer
import scipy.optimize
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.infer.util import constrain_fn, log_density, potential_energy, unconstrain_fn

from kpp.foundation.validation import count, positive
from kpp.inference.base import ApproximateMarginal, CalledWith, ConvergenceError, Data, NumpyroModel, Site
from kpp.inference.methods.units import prior_scale
from kpp.runtime.batching import announce, progress_bar
from kpp.runtime.threads import call_in_threads, num_cores
from kpp.typing import AnyArray

_LOGGER = logging.getLogger("kpp")
_KEPT = 128  # the number of compiled objectives in the cache
# A search goes on until the gradient is this much below the limit. Much lower, rounding errors would prolong it.
_MARGIN = 1e-2
# Modes with less than this share of the density of the highest one do not count. Between two modes the density falls by
# more than this factor; its logarithm is far above the errors of the searches.
_SHARE, _BARRIER = 1e-3, 0.1
_HUGE = 1e30  # the objective where the density is zero or NaN: finite, because the line search needs finite values


class Density(eqx.Module):
    r"""The joint density of a model's latent sites and data, as a function of one unconstrained vector.

    The vector u of length k holds all latent sites; NumPyro's bijection :math:`\theta(u)` maps each
    to its support.
    """

    _model: CalledWith
    _start: dict[str, jax.Array]  # prior medians
    _scale: dict[str, jax.Array]
    _latents: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, rng_key: jax.Array, numpyro_model: NumpyroModel, data: Data, sites: dict[str, Site]) -> None:
        self._model = CalledWith(numpyro_model)
        self._latents = tuple(name for name, site in sites.items() if site.kind == "latent")
        self._start, self._scale = initial_values(self._model, rng_key, data, "median")

    @property
    def start(self) -> np.ndarray:
        """The prior medians, in coordinates u."""
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(self._start)])

    @property
    def scale(self) -> np.ndarray:
        """The units of the coordinates u, in which searches take their steps: `units.prior_scale`."""
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(self._scale)]).astype(np.float64)

    def prior_draws(self, rng_key: jax.Array, data: Data, num: int) -> np.ndarray:
        """Draw from the prior, in coordinates u, (num, k); an improper prior is uniform between -2 and 2."""
        keys = jax.random.split(rng_key, num)
        draws = jax.tree.leaves(_prior_draws(self._model, keys, data))
        return np.concatenate([np.reshape(leaf, (num, -1)) for leaf in draws], axis=1)

    def unravel(self, vectors: np.ndarray) -> dict[str, AnyArray]:
        """Return the latent sites of vectors u, (chain, k), in unconstrained coordinates."""
        leaves, structure = jax.tree.flatten(self._start)
        parts = np.split(vectors.astype(self.start.dtype), np.cumsum([leaf.size for leaf in leaves])[:-1], axis=1)
        shaped = [part.reshape(len(part), *leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
        return jax.tree.unflatten(structure, shaped)

    def sites(self, vector: AnyArray, data: Data) -> dict[str, jax.Array]:
        """Return latent and deterministic sites at u."""
        return constrain_fn(self._model, (data,), {}, self._unravel(vector), return_deterministic=True)

    def draw_latents(self, rng_key: jax.Array, vector: AnyArray, data: Data) -> tuple[dict[str, jax.Array], jax.Array]:
        """Draw the latent values that distributions of observed sites integrate out approximately, given u.

        Also return the log of the ratio of their exact joint density with the observations to the law that they were
        drawn from, relative to the approximate density of the observations.
        """
        values = self.sites(vector, data)
        model = handlers.substitute(handlers.seed(self._model, jax.random.key(0)), data=values)
        latents: dict[str, jax.Array] = {}
        total = jnp.zeros((), jnp.result_type(vector))
        for number, site in enumerate(handlers.trace(model).get_trace(data).values()):
            if site["type"] == "sample" and site["is_observed"] and isinstance(site["fn"], ApproximateMarginal):
                found, log_ratio = site["fn"].draw_latents(jax.random.fold_in(rng_key, number), site["value"])
                latents, total = latents | found, total + log_ratio
        return latents, total

    def describe(self, index: int) -> str:
        """Return which site an entry of u belongs to."""
        names = [name for name, value in sorted(self._start.items()) for _ in range(value.size)]
        return f"the site {names[index]!r}"

    def constrained(self, vector: AnyArray, data: Data) -> jax.Array:
        r"""Return :math:`-\log p(y, \theta(u))`, the density with respect to the sites themselves (no Jacobian)."""
        values = self.sites(vector, data)
        latents = {name: values[name] for name in self._latents}
        return -log_density(self._model, (data,), {}, latents)[0]

    def unconstrained(self, vector: AnyArray, data: Data) -> jax.Array:
        r"""Return :math:`-\log p(y, \theta(u)) - \log|\partial\theta/\partial u|`, the density of u itself."""
        return potential_energy(self._model, (data,), {}, self._unravel(vector))

    def _unravel(self, vector: AnyArray) -> dict[str, jax.Array]:
        return ravel_pytree(self._start)[1](jnp.asarray(vector))


@dataclasses.dataclass(frozen=True)
class Optimum:
    """The result of an optimization."""

    vector: np.ndarray
    value: float  # a negative log-density
    gradient: float  # its largest entry, in the units of the coordinates
    num_evaluations: int  # over all starts
    num_converged: int
    num_starts: int
    num_modes: int = 1  # that the starts reached, of those with a noticeable density

    def attrs(self) -> dict[str, float | int]:
        """Return the numbers to keep in the attributes of a fit."""
        return {
            "log_density": -self.value,
            "gradient_norm": self.gradient,
            "evaluations": self.num_evaluations,
            "starts": self.num_starts,
            "converged_starts": self.num_converged,
            "modes": self.num_modes,
        }


def find_mode(
    function: Callable[[jax.Array, Data], jax.Array], density: Density, data: Data, rng_key: jax.Array, search: Any
) -> Optimum:
    """Minimize a negative log-density by L-BFGS from several starts, and keep the lowest value that has converged.

    The further starts are uniform within 2 units of the first one. A start has converged when no entry of the gradient
    exceeds the tolerance times the larger of 1 and the objective's absolute value (in float32 at least 1e-4). `search`,
    an inference, has the settings. Raises ConvergenceError if no start converged to a finite value.
    """
    objective, start = compile_objective(function, density, data), density.start
    num_restarts, max_steps = search.num_restarts, search.max_steps
    moves = np.asarray(_uniform_moves(rng_key, start.size, start.dtype, num_restarts))
    starts = np.concatenate([start[None], start + objective.scale * moves])
    ends = find_modes(objective, starts, max_steps=max_steps, tolerance=search.tolerance, progress=search.progress)
    evaluations = sum(end.num_evaluations for end in ends)
    converged = [end for end in ends if end.num_converged]
    if not converged:
        best = min(ends, key=lambda end: end.value)
        raise ConvergenceError(
            f"none of {len(ends)} starts reached a mode: at the best of them, negative log-density {best.value:.6g}, "
            f"the gradient is still {best.gradient:.3g}; raise `max_steps` ({max_steps}) or `num_restarts` "
            f"({num_restarts}), or use priors that keep the density finite: targets without noise, for example, need a "
            "prior of `noise_variance` that excludes 0, such as numpyro.distributions.InverseGamma(1.0, 0.05) for "
            "targets of variance 1"
        )
    if len(converged) < len(ends):
        _LOGGER.info("%d of %d starts did not converge and are ignored", len(ends) - len(converged), len(ends))
    modes = _distinct_modes(objective, converged)
    if len(modes) > 1:
        _LOGGER.warning(
            "the search found %d modes, with log densities from %.6g to %.6g; the result describes the highest one "
            "only, and a higher one may exist: raise `num_restarts` (%d), or use kpp.NUTS, which starts around all",
            len(modes),
            -modes[-1].value,
            -modes[0].value,
            num_restarts,
        )
    return dataclasses.replace(
        modes[0], num_evaluations=evaluations, num_converged=len(converged), num_starts=len(ends), num_modes=len(modes)
    )


def _distinct_modes(objective: Objective, ends: list[Optimum]) -> list[Optimum]:
    """Return the different modes with a noticeable density, the highest first: between them the density falls."""
    modes: list[Optimum] = []
    for end in sorted(ends, key=lambda end: end.value):
        middles = [objective(0.5 * (end.vector + mode.vector))[0] for mode in modes]
        low = bool(modes) and end.value > modes[0].value - np.log(_SHARE)
        if not low and all(middle > end.value + _BARRIER for middle in middles):
            modes.append(end)
    return modes


@dataclasses.dataclass(frozen=True)
class Objective:
    """The compiled value and gradient of an objective, at vectors of NumPy."""

    call: Callable[[np.ndarray], tuple[jax.Array, jax.Array]]
    dtype: np.dtype
    scale: np.ndarray  # the units of the entries, `Density.scale`

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Return value and gradient in double precision; a large value and no slope where they are not finite.

        The gradient is per unit: with respect to ``vector / scale``.
        """
        value, gradient = (np.asarray(part, dtype=np.float64) for part in self.call(vector.astype(self.dtype)))
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return _HUGE, np.zeros_like(gradient)
        return float(value), gradient * self.scale


def compile_objective(objective: Callable[[jax.Array, Data], jax.Array], density: Density, data: Data) -> Objective:
    """Return the compiled value and gradient of a method of a `Density`; densities of one shape share them."""
    leaves, structure = jax.tree.flatten(objective)
    arrays = [leaf if eqx.is_array(leaf) else None for leaf in leaves]
    evaluate = _value_and_gradient(structure, tuple(None if eqx.is_array(leaf) else leaf for leaf in leaves))
    return Objective(lambda vector: evaluate(arrays, vector, data), density.start.dtype, density.scale)


def find_modes(
    objective: Objective, starts: np.ndarray, *, max_steps: int, tolerance: float, progress: bool
) -> list[Optimum]:
    """Minimize an objective by L-BFGS from each start, (starts, k), several at a time; see `find_mode`."""
    # float32: rounding errors keep the gradient above a smaller limit
    limit = max(tolerance, 1e-4) if objective.dtype == jnp.float32 else tolerance
    with progress_bar(None, f"optimization, {len(starts)} starts", unit=" evaluations", show=progress) as bar:
        with announce(bar, "compiling"):
            objective(starts[0])  # compiles the program of all threads

        def evaluate_and_count(vector: np.ndarray) -> tuple[float, np.ndarray]:
            bar.update()
            return objective(objective.scale * vector)

        def descend(start: np.ndarray) -> Optimum:
            end = _descend(evaluate_and_count, start.astype(np.float64) / objective.scale, max_steps, limit)
            return dataclasses.replace(end, vector=objective.scale * end.vector)

        return call_in_threads(descend, list(starts), num_cores())


def check_search(num_restarts: int, max_steps: int, tolerance: float) -> None:
    """Raise ValueError for settings of `find_mode` that are out of range."""
    count(num_restarts, "num_restarts", 0)
    count(max_steps, "max_steps")
    positive(tolerance, "tolerance")


@functools.lru_cache(maxsize=_KEPT)
def _value_and_gradient(structure: Any, others: tuple[Any, ...]) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Return the compiled function of an objective's arrays, u and the data; `others` are leaves that are not arrays.

    `equinox.filter_jit` does the same, but partitions the objective at each call, which is slow for many short calls.
    """

    @jax.jit
    def evaluate(arrays: list[Any], vector: jax.Array, data: Data) -> tuple[jax.Array, jax.Array]:
        leaves = [other if leaf is None else leaf for leaf, other in zip(arrays, others, strict=True)]
        return jax.value_and_grad(jax.tree.unflatten(structure, leaves))(vector, data)

    return evaluate


@eqx.filter_jit
def _prior_draws(model: CalledWith, keys: jax.Array, data: Data) -> dict[str, jax.Array]:
    return jax.lax.map(lambda key: initial_values(model, key, data, "sample")[0], keys)


@eqx.filter_jit
def initial_values(
    model: CalledWith, rng_key: jax.Array, data: Data, kind: str
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Return the prior medians ("median") or a draw from the prior ("sample") by latent site, unconstrained.

    The second dict holds the units of these values; see `kpp.inference.methods.units.prior_scale`.
    """
    strategy = {"median": numpyro.infer.init_to_median, "sample": numpyro.infer.init_to_sample}[kind]()
    # NumPyro broadcasts ranks when it draws the 15 values for a median, which fails under strict rank promotion.
    with jax.numpy_rank_promotion("allow"):
        seeded = handlers.seed(model, rng_key)
        sites = handlers.trace(handlers.substitute(seeded, substitute_fn=strategy)).get_trace(data)
        latents = {
            name: site["value"] for name, site in sites.items() if site["type"] == "sample" and not site["is_observed"]
        }
        deltas = [name for name in latents if isinstance(sites[name]["fn"], dist.Delta)]
        if deltas:
            raise ValueError(
                f"the sites {deltas} have a Delta distribution, which is no prior: give the number itself in its "
                "place, or use `numpyro.deterministic` in a model function"
            )
        values = unconstrain_fn(handlers.seed(model, rng_key), (data,), {}, latents)
    return values, {name: prior_scale(sites[name]["fn"], value) for name, value in values.items()}


def with_units(model: CalledWith, data: Data) -> CalledWith:
    """Return a model whose unconstrained coordinates are in the units of the priors; see `units`."""
    _, scales = initial_values(model, jax.random.key(0), data, "median")
    units = {name: scale for name, scale in scales.items() if bool(jnp.any(scale != 1.0))}
    return dataclasses.replace(model, units=units)


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _uniform_moves(rng_key: jax.Array, size: int, dtype: np.dtype, num_starts: int) -> jax.Array:
    return jax.vmap(lambda key: jax.random.uniform(key, (size,), dtype, -2.0, 2.0))(
        jax.random.split(rng_key, num_starts)
    )


def _descend(
    evaluate: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray, max_steps: int, limit: float
) -> Optimum:
    size = np.inf

    def evaluate_and_keep(vector: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal size
        value, gradient = evaluate(vector)
        size = _relative_size(value, gradient)
        return value, gradient

    def stop_at_mode(intermediate_result: scipy.optimize.OptimizeResult) -> None:
        if size <= _MARGIN * limit:
            raise StopIteration

    # Only the gradient ends the search (ftol=0).
    options = {"maxiter": max_steps, "maxfun": 4 * max_steps, "ftol": 0.0, "gtol": _MARGIN * limit, "maxcor": 20}
    result = scipy.optimize.minimize(
        evaluate_and_keep, start, jac=True, method="L-BFGS-B", options=options, callback=stop_at_mode
    )
    found = result.fun < _HUGE
    converged = found and _relative_size(result.fun, result.jac) <= limit
    largest = float(np.abs(result.jac).max(initial=0.0)) if found else np.inf
    return Optimum(result.x, float(result.fun), largest, int(result.nfev), int(converged), 1)


def _relative_size(value: float, gradient: np.ndarray) -> float:
    """Return the largest entry of a gradient, in units of the objective's absolute value if that is above 1."""
    return float(np.abs(gradient).max(initial=0.0)) / max(1.0, abs(value))
