"""The joint mode of all sites, and a Gaussian there."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from numpyro import distributions as dist

from kpp.foundation.validation import count
from kpp.inference.base import (
    AbstractInference,
    ConvergenceError,
    Data,
    NumpyroModel,
    Posterior,
    inspect_sites,
    without_latents,
)
from kpp.inference.example_models import linear_regression, regression_data
from kpp.inference.methods.optimum import Density, Optimum, check_search, compile_objective, find_mode
from kpp.runtime.batching import NUM_BLOCKS, map_blocks
from kpp.runtime.threads import num_cores
from kpp.storage import arviz_data
from kpp.typing import AnyArray, RngKey


class MAP(AbstractInference):
    r"""Find the joint mode of all latent sites.

    .. math:: \hat\theta = \arg\max_\theta\; p(y \mid \theta)\, p(\theta)

    The density that is maximized is the density of the sites themselves, as the model is written: for a lengthscale
    with a LogNormal prior it is the density of the lengthscale, not of its logarithm. The search runs in unconstrained
    coordinates, but their Jacobian is left out, so the mode does not depend on these coordinates. (`kpp.Laplace` is
    centered at the mode *with* the Jacobian.) A density without a maximum inside the support has no mode, for example
    the density of a Gamma prior with concentration below 1.

    The attribute ``modes`` of the fit is the number of different modes that the starts reached, of those whose density
    is at least a thousandth of the highest one. The fit is the highest of them; a warning tells if there are several.

    Args:
        num_restarts: The number of further starts, in addition to the prior medians.
        max_steps: Steps of L-BFGS from each start.
        tolerance: A start has converged when no entry of the gradient exceeds this times max(1, abs(log-density)).
        progress: Whether to show a progress bar.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> model = kpp_models.GPRegression(kpp.kernels.RBF(dist.LogNormal()), 0.01)
        >>> found = model.fit(jax.random.key(0), x, y, inference=kpp.MAP(progress=False), num_prior_samples=0)
        >>> found.draws["kernel.lengthscale"].round(1)
        Array([[1.8]], dtype=float64)
    """

    approximates: ClassVar[bool] = True

    num_restarts: int = eqx.field(static=True, default=2)
    max_steps: int = eqx.field(static=True, default=500)
    tolerance: float = eqx.field(static=True, default=1e-6)
    progress: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        check_search(self.num_restarts, self.max_steps, self.tolerance)

    def run(self, rng_key: RngKey, numpyro_model: NumpyroModel, data: Data) -> Posterior:
        """Find the mode; one chain of one draw.

        Raises:
            ConvergenceError: If no start converged.
        """
        sites = inspect_sites(numpyro_model, data)
        if (fixed := without_latents(numpyro_model, data, sites, "MAP")) is not None:
            return fixed
        init_key, restart_key = jax.random.split(rng_key)
        density = Density(init_key, numpyro_model, data, sites)
        mode = find_mode(density.constrained, density, data, restart_key, self)
        samples = _one_draw(density, mode.vector.astype(density.start.dtype), data)
        stats = {"lp": jnp.asarray(np.full((1, 1), -mode.value))}
        return Posterior(samples, stats, {"inference": "MAP", **mode.attrs()})

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractInference, NumpyroModel, Data]]:
        yield cls(progress=False), linear_regression, regression_data(rng_key)


@eqx.filter_jit
def _one_draw(density: Density, vector: AnyArray, data: Data) -> dict[str, jax.Array]:
    return {name: jnp.asarray(value)[None, None] for name, value in density.sites(vector, data).items()}


_LOGGER = logging.getLogger("kpp")
_MODE, _FACTOR = "mode", "precision_factor"
_POLISH_STEPS = 5  # from L-BFGS's optimum few of Newton's steps are enough
_NEAR = 1e-6  # a step, in units of the coordinates u, that leaves the Hessian as it is
_TAILS = 7.0  # degrees of freedom of the proposal of importance sampling
_RELIABLE = 0.7  # the largest reliable shape of the weights' tail, Vehtari et al. (2024)


class Laplace(AbstractInference):
    r"""Approximate the posterior by a Gaussian at the joint mode of all latent sites, and draw from it.

    In the unconstrained coordinates u of all sites together,

    .. math:: q(u) = N(u \mid \hat u, H^{-1}), \qquad \hat u = \arg\max_u \log p(y, u), \qquad
        H = -\nabla^2 \log p(y, u)\big|_{\hat u},

    where p(y, u) is the density of u itself, including the Jacobian of the bijections. Draws of u are mapped back to
    the sites. `sample_stats` holds ``lp``, the log joint density of each draw, and ``log_q``, its log density under q
    (both of u): their difference is constant if the approximation is exact.

    The attribute ``modes`` of the fit is the number of different modes that the starts reached, as for `kpp.MAP`.

    With ``importance=True`` the draws are corrected: they are drawn again with probabilities proportional to the
    importance weights p(y, u) / q(u), whose tail is smoothed by a Pareto distribution; ``log_q`` then equals ``lp``.
    Where the model integrates latent values out by Laplace's approximation (`kpp.gp.LaplaceMarginal`), these are drawn
    too, as the site ``latent_whitened``, by annealed importance sampling. q is then a t distribution with 7 degrees of
    freedom, because its tails must not be lighter than the tails of the posterior. The attribute ``pareto_k`` of the
    fit tells whether the correction can be trusted: above 0.7 it cannot, and a warning says so. It is NaN for fewer
    than 30 draws. A kernel with fewer features than observations keeps Laplace's approximation of the latent values.

    Args:
        num_samples: The number of draws; one chain.
        num_restarts: The number of further starts of the search for the mode, in addition to the prior medians.
        max_steps: Steps of L-BFGS from each start; Newton steps then improve the best mode.
        tolerance: A start has converged when no entry of the gradient exceeds this times max(1, abs(log-density)).
        progress: Whether to show a progress bar.
        importance: Whether to correct the draws by importance weights. By default models of preferences do, and all
            others do not.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> inference = kpp.Laplace(num_samples=100, progress=False)
        >>> fit = model.fit(jax.random.key(0), x, y, inference=inference, **quiet)
        >>> fit.draws["kernel.lengthscale"].shape
        (1, 100)

    References:
        C. E. Rasmussen, C. K. I. Williams (2006). Gaussian Processes for Machine Learning, section 3.4 (there for the
        posterior of latent values); A. Vehtari, D. Simpson, A. Gelman, Y. Yao, J. Gabry (2024). Pareto smoothed
        importance sampling. JMLR 25.
    """

    approximates: ClassVar[bool] = True

    num_samples: int = eqx.field(static=True, default=1000)
    num_restarts: int = eqx.field(static=True, default=2)
    max_steps: int = eqx.field(static=True, default=500)
    tolerance: float = eqx.field(static=True, default=1e-6)
    progress: bool = eqx.field(static=True, default=True)
    importance: bool | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        count(self.num_samples, "num_samples")
        check_search(self.num_restarts, self.max_steps, self.tolerance)

    def run(self, rng_key: RngKey, numpyro_model: NumpyroModel, data: Data) -> Posterior:
        """Find the mode and draw.

        Raises:
            ConvergenceError: If no start converged, or the Hessian H is not positive definite at the mode.
        """
        sites = inspect_sites(numpyro_model, data)
        if (fixed := without_latents(numpyro_model, data, sites, "Laplace")) is not None:
            return fixed
        init_key, restart_key, draw_key = jax.random.split(rng_key, 3)
        density = Density(init_key, numpyro_model, data, sites)
        mode = find_mode(density.unconstrained, density, data, restart_key, self)
        vector, factor = _polish(density, mode, data)
        state = {_MODE: vector, _FACTOR: factor}
        found = _draw(density, draw_key, self.num_samples, data, state, bool(self.importance))
        return dataclasses.replace(found, attrs=found.attrs | mode.attrs())

    def draw(
        self, rng_key: RngKey, num_samples: int, numpyro_model: NumpyroModel, data: Data, state: Mapping[str, jax.Array]
    ) -> Posterior:
        sites = inspect_sites(numpyro_model, data)
        if (fixed := without_latents(numpyro_model, data, sites, "Laplace")) is not None:
            return fixed
        init_key, draw_key = jax.random.split(rng_key)
        density = Density(init_key, numpyro_model, data, sites)
        return _draw(density, draw_key, num_samples, data, state, bool(self.importance))

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractInference, NumpyroModel, Data]]:
        yield cls(num_samples=50, progress=False), linear_regression, regression_data(rng_key)


def _polish(density: Density, mode: Optimum, data: Data) -> tuple[jax.Array, jax.Array]:
    """Improve the mode by Newton steps; return it with the lower Cholesky factor of the Hessian there."""
    found = mode.vector.astype(density.start.dtype)
    slope, hessian = _gradient_and_hessian(density, found, data)
    vector = _descend_further(density, mode, slope, hessian, data).astype(found.dtype)
    if np.abs((vector - found) / density.scale).max(initial=0.0) > _NEAR:
        _, hessian = _gradient_and_hessian(density, vector, data)
    try:
        factor = np.linalg.cholesky(hessian)
    except np.linalg.LinAlgError:
        factor = np.full_like(hessian, np.nan)
    if not np.isfinite(factor).all():
        raise ConvergenceError(_explain_flat(density, np.asarray(hessian) * np.outer(density.scale, density.scale)))
    return jnp.asarray(vector), jnp.asarray(factor)


def _descend_further(density: Density, mode: Optimum, slope: AnyArray, hessian: AnyArray, data: Data) -> np.ndarray:
    """Make Newton steps with one Hessian as long as they reduce the gradient; return the vector."""
    objective, vector = compile_objective(density.unconstrained, density, data), mode.vector
    scale = density.scale
    slope, hessian = slope * scale, hessian * np.outer(scale, scale)
    for _ in range(_POLISH_STEPS):
        try:
            step = vector - scale * np.linalg.solve(hessian, slope)
        except np.linalg.LinAlgError:  # singular; the factorization of the Hessian explains it
            break
        value, new_slope = objective(step)
        if value > mode.value + 1.0 or not np.abs(new_slope).max() < np.abs(slope).max():
            break
        vector, slope = step, new_slope
    return vector


@eqx.filter_jit
def _gradient_and_hessian(density: Density, vector: AnyArray, data: Data) -> tuple[jax.Array, jax.Array]:
    def gradient(vector: AnyArray) -> jax.Array:
        return jax.grad(density.unconstrained)(vector, data)

    # Column by column, so that the memory is that of one derivative and not of k.
    columns = jax.lax.map(lambda direction: jax.jvp(gradient, (vector,), (direction,))[1], jnp.eye(vector.size))
    return gradient(vector), 0.5 * (columns + columns.T)


def _draw(
    density: Density, rng_key: jax.Array, num_samples: int, data: Data, state: Mapping[str, jax.Array], importance: bool
) -> Posterior:
    keys = jax.random.split(rng_key, num_samples)
    draw = _propose_block if importance else _draw_block

    def draw_block(keys: jax.Array) -> Any:
        return draw(density, keys, data, state[_MODE], state[_FACTOR])

    found = map_blocks(draw_block, keys, math.ceil(num_samples / NUM_BLOCKS), threads=num_cores())
    attrs: dict[str, object] = {"inference": "Laplace"}
    if importance:
        draws, log_density, log_ratio = found
        rows, further = _resample(jax.random.fold_in(rng_key, num_samples), np.asarray(log_ratio))
        # Corrected draws have the density of the posterior, so that nobody weights them again.
        kept = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], (draws, log_density))
        found, attrs = (*kept, kept[1]), attrs | further
    draws, log_density, log_q = jax.tree.map(lambda leaf: jnp.asarray(leaf[None]), found)  # one chain
    return Posterior(draws, {"lp": log_density, "log_q": log_q}, attrs, dict(state))


@eqx.filter_jit
def _draw_block(
    density: Density, keys: jax.Array, data: Data, mode: jax.Array, factor: jax.Array
) -> tuple[dict[str, jax.Array], jax.Array, jax.Array]:
    normalizer = jnp.sum(jnp.log(jnp.diagonal(factor))) - 0.5 * mode.size * jnp.log(2.0 * jnp.pi)

    def one(key: jax.Array) -> tuple[dict[str, jax.Array], jax.Array, jax.Array]:
        noise = jax.random.normal(key, mode.shape, mode.dtype)
        # H = L L^T, so that the covariance is H^-1.
        vector = mode + jsl.solve_triangular(factor, noise, lower=True, trans="T")
        return density.sites(vector, data), -density.unconstrained(vector, data), normalizer - 0.5 * noise @ noise

    return jax.lax.map(one, keys)


@eqx.filter_jit
def _propose_block(
    density: Density, keys: jax.Array, data: Data, mode: jax.Array, factor: jax.Array
) -> tuple[dict[str, jax.Array], jax.Array, jax.Array]:
    """Draw from the t distribution; return sites, their log densities, and the logs of the importance weights."""
    law = dist.MultivariateStudentT(_TAILS, jnp.zeros_like(mode), jnp.eye(mode.size, dtype=mode.dtype))
    scale = jnp.sum(jnp.log(jnp.diagonal(factor)))

    def one(key: jax.Array) -> tuple[dict[str, jax.Array], jax.Array, jax.Array]:
        first, second = jax.random.split(key)
        noise = law.sample(first)
        vector = mode + jsl.solve_triangular(factor, noise, lower=True, trans="T")
        latents, added = density.draw_latents(second, vector, data)
        log_density = -density.unconstrained(vector, data)
        log_weight = log_density - law.log_prob(noise) - scale + added
        return density.sites(vector, data) | latents, log_density, log_weight

    return jax.lax.map(one, keys)


def _resample(rng_key: jax.Array, log_ratio: AnyArray) -> tuple[np.ndarray, dict[str, object]]:
    """Return the numbers of the draws to keep, by systematic resampling, and the diagnostics of the weights."""
    log_weights, pareto_k = arviz_data.psis(log_ratio)
    weights = np.exp(log_weights)
    num = len(weights)
    if pareto_k > _RELIABLE:
        _LOGGER.warning(
            "the importance weights of Laplace's approximation vary too much to correct it (pareto_k = %.2f, above "
            "%.1f); use kpp.NUTS(), or more draws",
            pareto_k,
            _RELIABLE,
        )
    positions = (np.arange(num) + float(jax.random.uniform(rng_key))) / num
    rows = np.minimum(np.searchsorted(np.cumsum(weights), positions), num - 1)  # rounding may leave the sum below 1
    return rows, {"pareto_k": pareto_k, "importance_ess": float(1.0 / np.sum(weights**2))}


def _explain_flat(density: Density, hessian: np.ndarray) -> str:
    if not np.isfinite(hessian).all():
        return "the second derivatives at the mode are not finite, so there is no Gaussian there"
    values, vectors = np.linalg.eigh(hessian)
    return (
        f"the mode is not a strict maximum: the smallest eigenvalue of the Hessian is {values[0]:.3g}, in the "
        f"direction of {density.describe(int(np.abs(vectors[:, 0]).argmax()))}; use a tighter prior there, or kpp.NUTS"
    )
