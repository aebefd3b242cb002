"""The No-U-Turn sampler, as NumPyro has it, with chains that can be continued."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.infer

from kpp.inference.base import (
    AbstractInference,
    Data,
    NumpyroModel,
    Posterior,
    called_with,
    inspect_sites,
    without_latents,
)
from kpp.typing import RngKey
from kpp.validation import check_rng_key

__all__ = ["NUTS"]

_LOGGER = logging.getLogger("kpp")
_STATS = {
    "diverging": "diverging",
    "num_steps": "n_steps",
    "accept_prob": "acceptance_rate",
    "energy": "energy",
    "potential_energy": "lp",
    "adapt_state.step_size": "step_size",
}
_INITS = {
    "uniform": numpyro.infer.init_to_uniform,
    "median": numpyro.infer.init_to_median,
    "sample": numpyro.infer.init_to_sample,
    "feasible": numpyro.infer.init_to_feasible,
}
_POSITION = "position."


class NUTS(AbstractInference):
    """Draw from the posterior by the No-U-Turn sampler of NumPyro.

    Args:
        num_warmup: Steps of each chain that adapt step size and mass matrix, and are dropped.
        num_samples: Draws kept of each chain.
        num_chains: The number of chains.
        target_accept: The acceptance probability that the step size aims at, in (0, 1). Closer to 1 gives smaller steps
            and fewer divergences.
        chain_method: "sequential" (one chain after the other), "vectorized" (all in one program) or "parallel" (one a
            device).
        dense_mass: Whether the mass matrix has correlations.
        max_tree_depth: A trajectory has at most 2 to this power steps.
        init: Where chains start: "uniform" (between -2 and 2 in unconstrained space), "median" or "sample" of the
            prior, or "feasible".
        progress: Whether to show progress bars.

    Raises:
        ValueError: If a number is out of range or a name unknown.

    References:
        M. D. Hoffman, A. Gelman (2014). The No-U-Turn sampler. JMLR 15, algorithm 6.
    """

    num_warmup: int = eqx.field(static=True, default=500)
    num_samples: int = eqx.field(static=True, default=500)
    num_chains: int = eqx.field(static=True, default=2)
    target_accept: float = eqx.field(static=True, default=0.8)
    chain_method: str = eqx.field(static=True, default="sequential")
    dense_mass: bool = eqx.field(static=True, default=False)
    max_tree_depth: int = eqx.field(static=True, default=10)
    init: str = eqx.field(static=True, default="uniform")
    progress: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        """Refuse settings that NumPyro would refuse later or not at all."""
        for name, least in (("num_warmup", 0), ("num_samples", 1), ("num_chains", 1), ("max_tree_depth", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"`{name}` must be at least {least}, got {getattr(self, name)}")
        if not 0.0 < self.target_accept < 1.0:
            raise ValueError(f"`target_accept` must lie between 0 and 1, got {self.target_accept}")
        if self.chain_method not in ("sequential", "vectorized", "parallel"):
            raise ValueError(
                f"`chain_method` must be 'sequential', 'vectorized' or 'parallel', got {self.chain_method!r}"
            )
        if self.init not in _INITS:
            raise ValueError(f"`init` must be one of {list(_INITS)}, got {self.init!r}")

    def run(self, rng_key: RngKey, numpyro_model: NumpyroModel, data: Data, *, progress: bool = True) -> Posterior:
        """Draw; see `AbstractInference.run`."""
        rng_key = check_rng_key(rng_key)
        fixed = without_latents(numpyro_model, data, inspect_sites(numpyro_model, data), "NUTS")
        if fixed is not None:
            return fixed
        kernel = self._kernel(numpyro_model, init_strategy=_INITS[self.init]())
        mcmc = self._mcmc(kernel, self.num_warmup, self.num_samples, self.num_chains, progress)
        mcmc.run(rng_key, data, extra_fields=tuple(_STATS))
        return self._collect(mcmc)

    def resume(
        self,
        rng_key: RngKey,
        num_samples: int,
        numpyro_model: NumpyroModel,
        data: Data,
        state: Mapping[str, jax.Array],
        *,
        progress: bool = True,
    ) -> Posterior:
        """Continue every chain from its last position with its own step size and mass matrix, without further warm-up.

        Args:
            rng_key: A JAX random key, another one than that of `run`.
            num_samples: Further draws of each chain.
            numpyro_model: The model function that the chains belong to.
            data: Its arguments by name.
            state: `Posterior.state` of the chains.
            progress: Whether to show progress bars.

        Returns:
            The further draws only, with the state to go on from.
        """
        if not state:
            raise TypeError("there are no chains to resume: the model has no latent sites")
        num_chains = state["step_size"].shape[0]
        keys = jax.random.split(check_rng_key(rng_key), num_chains)
        starts = [self._restart(keys[chain], numpyro_model, data, state, chain) for chain in range(num_chains)]
        mcmc = self._mcmc(self._kernel(numpyro_model), 0, num_samples, num_chains, progress)
        mcmc.post_warmup_state = (
            starts[0] if num_chains == 1 else jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
        )
        mcmc.run(keys[0] if num_chains == 1 else keys, data, extra_fields=tuple(_STATS))
        return self._collect(mcmc)

    def _kernel(self, numpyro_model: NumpyroModel, **options: Any) -> numpyro.infer.NUTS:
        return numpyro.infer.NUTS(
            called_with(numpyro_model),
            target_accept_prob=self.target_accept,
            dense_mass=self.dense_mass,
            max_tree_depth=self.max_tree_depth,
            **options,
        )

    def _mcmc(
        self, kernel: numpyro.infer.NUTS, num_warmup: int, num_samples: int, num_chains: int, progress: bool
    ) -> numpyro.infer.MCMC:
        # The data as traced arguments, not constants: one compilation for all chains, and for other data of that shape.
        return numpyro.infer.MCMC(
            kernel,
            num_warmup=num_warmup,
            num_samples=num_samples,
            num_chains=num_chains,
            chain_method=self.chain_method,
            progress_bar=progress,
            jit_model_args=True,
        )

    def _restart(
        self, rng_key: RngKey, numpyro_model: NumpyroModel, data: Data, state: Mapping[str, jax.Array], chain: int
    ) -> Any:
        position = {
            name.removeprefix(_POSITION): value[chain] for name, value in state.items() if name.startswith(_POSITION)
        }
        kernel = self._kernel(
            numpyro_model,
            step_size=state["step_size"][chain],
            inverse_mass_matrix={tuple(sorted(position)): state["inverse_mass_matrix"][chain]},
            adapt_step_size=False,
            adapt_mass_matrix=False,
        )
        return kernel.init(rng_key, 0, position, (data,), {})

    def _collect(self, mcmc: numpyro.infer.MCMC) -> Posterior:
        stats = {_STATS[name]: value for name, value in mcmc.get_extra_fields(group_by_chain=True).items()}
        stats["lp"] = -stats["lp"]
        stats["tree_depth"] = jnp.floor(jnp.log2(stats["n_steps"])).astype(int) + 1
        self._warn(stats)
        last = mcmc.last_state
        if mcmc.num_chains == 1:
            last = jax.tree.map(lambda leaf: leaf[None], last)
        (inverse_mass_matrix,) = last.adapt_state.inverse_mass_matrix.values()
        state = {_POSITION + name: value for name, value in last.z.items()}
        state |= {"step_size": last.adapt_state.step_size, "inverse_mass_matrix": inverse_mass_matrix}
        samples = {name: jnp.asarray(value) for name, value in mcmc.get_samples(group_by_chain=True).items()}
        attrs = {"inference": "NUTS", "divergences": int(stats["diverging"].sum()), "num_warmup": self.num_warmup}
        return Posterior(samples, stats, attrs, state)

    def _warn(self, stats: Mapping[str, jax.Array]) -> None:
        total = stats["diverging"].size
        diverging = int(stats["diverging"].sum())
        if diverging:
            _LOGGER.warning(
                "%d of %d draws ended in a divergence, so that the posterior may be biased; raise `target_accept` (it "
                "is %g), use tighter priors or another parametrisation",
                diverging,
                total,
                self.target_accept,
            )
        deep = int(
            (stats["tree_depth"] > self.max_tree_depth).sum() + (stats["n_steps"] >= 2**self.max_tree_depth - 1).sum()
        )
        if deep:
            _LOGGER.warning(
                "%d of %d trajectories were cut at the maximal tree depth %d, so that chains move slowly; raise "
                "`max_tree_depth` or standardise the data",
                deep,
                total,
                self.max_tree_depth,
            )
