"""What a unit says of its noise and its hidden causes, and its value at another latent value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kpp import linalg
from kpp.gp import AbstractPointwiseLikelihood, GaussianLikelihood, StudentTLikelihood
from kpp.typing import RngKey

# Candidates for hidden causes of labels and counts, whose weights are bounded by the likelihood.
_NUM_CANDIDATES = 256
# Quantiles stay below 1 by more than the rounding error of a sum of probabilities.
_HIGHEST = 1.0 - 1e-12


def check_noise(likelihood: AbstractPointwiseLikelihood, node: str) -> None:
    """Raise ValueError if an observation is neither a latent value plus noise nor a whole number."""
    if not isinstance(likelihood, (GaussianLikelihood, StudentTLikelihood)) and not likelihood.support.is_discrete:
        raise ValueError(
            f"`do` must not affect {node!r}: a counterfactual needs Gaussian or Student-t noise, labels, levels or "
            f"counts, got {type(likelihood).__name__}"
        )


def draw_hidden(
    rng_key: RngKey,
    mechanisms: Mapping[str, Any],
    causes: list[str],
    units: Mapping[str, Array],
    latent: Mapping[str, Array],
) -> dict[str, Float[Array, " p"]]:
    r"""Draw the hidden causes of p units given all their variables.

    .. math:: u = u_0 + L^\top (L L^\top + D)^{-1} (r - L u_0 - e_0), \qquad u_0 \sim N(0, I),\; e_0 \sim N(0, D)

    r are the residuals of the variables with Gaussian noise, of variances D, and L their loadings. Candidates of this
    law are weighted by the likelihood of other variables. `latent` holds the latent values of each node without hidden
    causes, (p,).
    """
    if not causes:
        return {}
    nodes = [node for node, mechanism in mechanisms.items() if mechanism.loadings]
    exact = [node for node in nodes if isinstance(mechanisms[node].likelihood, GaussianLikelihood)]
    others = [node for node in nodes if node not in exact]
    size, draws = len(units[nodes[0]]), _NUM_CANDIDATES if others else 1
    prior_key, noise_key, choice_key = jax.random.split(rng_key, 3)
    candidates = jax.random.normal(prior_key, (draws, len(causes), size))
    if exact:
        loadings = jnp.stack([_row(mechanisms[node].loadings, causes) for node in exact])
        variances = jnp.stack([jnp.asarray(mechanisms[node].likelihood.noise_variance) for node in exact])
        residuals = jnp.stack([units[node] - latent[node] for node in exact])
        white = jax.random.normal(noise_key, (draws, *residuals.shape))
        factor = linalg.cholesky(loadings @ loadings.T + jnp.diag(variances), what="the covariance of the residuals")

        def given_residuals(prior: Array, white: Array) -> Array:
            gap = residuals - loadings @ prior - jnp.sqrt(variances)[:, None] * white  # r - L u_0 - e_0
            return prior + loadings.T @ linalg.cho_solve(factor, gap)

        candidates = jax.lax.map(lambda pair: given_residuals(*pair), (candidates, white))
    weights = jnp.zeros((draws, size))
    for node in others:
        density = mechanisms[node].likelihood.observe(units[node]).log_density
        pulls = jnp.einsum("k,mkp->mp", _row(mechanisms[node].loadings, causes), candidates)
        weights += jax.lax.map(density, latent[node][None] + pulls)
    chosen = jax.random.categorical(choice_key, weights, axis=0)
    return {cause: candidates[chosen, place, jnp.arange(size)] for place, cause in enumerate(causes)}


def _row(loadings: Mapping[str, Any], causes: list[str]) -> Float[Array, " k"]:
    return jnp.stack([jnp.asarray(loadings.get(cause, 0.0), float) for cause in causes])


def respond(
    rng_key: RngKey,
    likelihood: AbstractPointwiseLikelihood,
    observed: Float[Array, " p"],
    before: Float[Array, " p"],
    after: Float[Array, " p"],
) -> Float[Array, " p"]:
    """Return the values of units at the latent values `after`, with the noise that they have at those of `before`.

    With noise that is added, the residuals are kept; of labels, levels and counts the quantiles, which are drawn.
    """
    if isinstance(likelihood, (GaussianLikelihood, StudentTLikelihood)):
        return observed + after - before
    level, below = _climb(likelihood, before, lambda level, _: level < observed)
    mass = jnp.exp(likelihood.observe(level).log_density(before))
    quantile = jnp.minimum(below + jax.random.uniform(rng_key, below.shape) * mass, _HIGHEST)
    return _climb(likelihood, after, lambda _, total: total <= quantile)[0]


def _climb(
    likelihood: AbstractPointwiseLikelihood,
    latent: Float[Array, " p"],
    goes_on: Callable[[Array, Array], Bool[Array, " p"]],
) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
    """Count up from 0 while a condition on k and P(Y <= k) holds; return k and P(Y < k)."""

    def at_most(state: tuple[Array, Array]) -> Array:
        return state[1] + jnp.exp(likelihood.observe(state[0]).log_density(latent))

    def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
        total = at_most(state)
        higher = goes_on(state[0], total)
        return jnp.where(higher, state[0] + 1.0, state[0]), jnp.where(higher, total, state[1])

    start = jnp.zeros_like(latent), jnp.zeros_like(latent)
    return jax.lax.while_loop(lambda state: jnp.any(goes_on(state[0], at_most(state))), step, start)
