r"""Starting points of chains and their first mass matrix, from Laplace's approximations at the modes.

The search for modes starts at the prior medians and at draws from the prior. At each mode :math:`\hat u` the posterior
is close to :math:`N(\hat u, H^{-1})`, with H the Hessian of the negative log-density; its mass is about
:math:`p(y, \hat u) \det(H / 2 \pi)^{-1/2}`. Chains are dispersed over the modes with a noticeable share of the mass. A
chain starts at a draw with a wider spread, so that chains that agree have really mixed.
"""

from __future__ import annotations

import dataclasses
import logging

import jax
import numpy as np
from jaxtyping import Float

from kpp.inference.base import ConvergenceError, Data, NumpyroModel, Site
from kpp.inference.methods.optimum import Density, Objective, Optimum, compile_objective, find_modes
from kpp.runtime.random import numpy_generator
from kpp.runtime.threads import call_in_threads, num_cores
from kpp.typing import AnyArray

_LOGGER = logging.getLogger("kpp")
# The number of searches, one of them from the prior medians. If two modes attract half of the prior each, one is
# missed with a probability of 1 in 64.
_SEARCHES = 8
# A search may stop early: the mode need not be exact. The gradient's largest entry, relative to the log-density.
_TOLERANCE, _STEPS = 1e-4, 200
# Modes with less than this share of the mass of the largest one get no chain.
_SHARE = 1e-3
# Two optima are one mode if they are this many standard deviations apart, in the approximation of one of them.
_SAME = 0.5
# A chain starts at a draw with this multiple of the approximation's standard deviations, or, where the density there is
# too low for the approximation, at a closer point on the way to the mode.
_SPREADS = (1.5, 0.75, 0.25, 0.0)


@dataclasses.dataclass(frozen=True)
class Starts:
    """Where chains start."""

    positions: dict[str, AnyArray]  # in unconstrained coordinates, with the axis of chains first
    energies: Float[np.ndarray, " chain"]  # the negative log-densities there
    gradients: dict[str, AnyArray]
    covariances: Float[np.ndarray, "chain k k"]  # of the approximations; sites in alphabetical order
    num_modes: int  # over which the chains are dispersed
    num_evaluations: int  # of the gradient


@dataclasses.dataclass(frozen=True)
class _Mode:
    """A mode with its approximation; `log_mass` is the logarithm of the mass."""

    vector: Float[np.ndarray, " k"]
    value: float
    covariance: Float[np.ndarray, "k k"]
    log_mass: float

    def is_near(self, vector: np.ndarray) -> bool:
        difference = vector - self.vector
        return bool(difference @ np.linalg.solve(self.covariance, difference) < _SAME**2 * len(vector))


def laplace_starts(
    rng_key: jax.Array, numpyro_model: NumpyroModel, data: Data, sites: dict[str, Site], num_chains: int, progress: bool
) -> Starts:
    """Find modes, of a positive definite Hessian, and draw the starts of chains around them."""
    init_key, search_key, draw_key = jax.random.split(rng_key, 3)
    density = Density(init_key, numpyro_model, data, sites)
    objective = compile_objective(density.unconstrained, density, data)
    searches = np.concatenate([density.start[None], density.prior_draws(search_key, data, _SEARCHES - 1)])
    ends = find_modes(objective, searches, max_steps=_STEPS, tolerance=_TOLERANCE, progress=progress)
    modes = _distinct_modes(objective, [end for end in ends if end.num_converged])
    if not modes:
        raise ConvergenceError(f"none of {len(ends)} searches converged to a mode with a positive definite Hessian")
    chosen = [modes[chain % len(modes)] for chain in range(num_chains)]
    noise = numpy_generator(draw_key).standard_normal((num_chains, density.start.size))
    found = [_start(objective, mode, draw) for mode, draw in zip(chosen, noise, strict=True)]
    vectors, energies, gradients = (np.stack(parts) for parts in zip(*found, strict=True))
    evaluations = sum(end.num_evaluations for end in ends) + 2 * density.start.size * len(modes)
    _LOGGER.info("%d chains start around %d modes, found with %d gradients", num_chains, len(modes), evaluations)
    covariances = np.stack([mode.covariance for mode in chosen])
    return Starts(
        density.unravel(vectors),
        energies.astype(objective.dtype),
        density.unravel(gradients / objective.scale),
        covariances,
        len(modes),
        evaluations,
    )


def _distinct_modes(objective: Objective, ends: list[Optimum]) -> list[_Mode]:
    """Return the modes with a noticeable share of the mass, the heaviest first."""
    modes: list[_Mode] = []
    for end in sorted(ends, key=lambda end: end.value):
        if not any(mode.is_near(end.vector) for mode in modes):
            found = _approximate(objective, end)
            modes += [] if found is None else [found]
    modes.sort(key=lambda mode: -mode.log_mass)
    return [mode for mode in modes if mode.log_mass > modes[0].log_mass + np.log(_SHARE)]


def _approximate(objective: Objective, end: Optimum) -> _Mode | None:
    """Return a mode with the inverse of its Hessian, or None if the Hessian is not positive definite."""
    hessian = _hessian(objective, end.vector)
    if not np.isfinite(hessian).all():
        return None
    # In units of the coordinates; the masses of all modes change by the same factor.
    values, vectors = np.linalg.eigh(hessian)
    if values[0] <= 1e-8 * values[-1]:  # flat up to errors of the differences
        return None
    log_mass = -end.value - 0.5 * np.log(values).sum()
    roots = objective.scale[:, None] * vectors
    return _Mode(end.vector, end.value, (roots / values) @ roots.T, log_mass)


def _hessian(objective: Objective, vector: np.ndarray) -> np.ndarray:
    """Return the Hessian in units of the coordinates.

    Central differences compile nothing, and their errors do not matter for a mass matrix.
    """
    step = np.finfo(objective.dtype).eps ** (1 / 3)  # balances truncation, step^2, and rounding, eps / step
    moves = step * np.diag(objective.scale)
    ends = np.stack(call_in_threads(lambda at: objective(at)[1], [*(vector + moves), *(vector - moves)], num_cores()))
    hessian = (ends[: len(vector)] - ends[len(vector) :]) / (2 * step)
    return 0.5 * (hessian + hessian.T)


def _start(objective: Objective, mode: _Mode, noise: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """Return an overdispersed draw around a mode, where the density is not much lower than under the approximation.

    With it come the negative log-density and its gradient.
    """
    direction = np.linalg.cholesky(mode.covariance) @ noise
    for spread in _SPREADS:
        vector = mode.vector + spread * direction
        expected = mode.value + 0.5 * spread**2 * noise @ noise
        energy, gradient = objective(vector)
        if energy < expected + len(noise) + 10.0:
            break
    return vector, energy, gradient
