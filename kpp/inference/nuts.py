"""NumPyro's No-U-Turn sampler, with chains that can be continued."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.infer
from numpyro.infer.hmc import HMCState

from kpp.batching import progress_bar
from kpp.inference.base import (
    AbstractInference,
    CalledWith,
    ConvergenceError,
    Data,
    NumpyroModel,
    Posterior,
    inspect_sites,
    without_latents,
)
from kpp.typing import AnyArray, RngKey
from kpp.validation import between, check_rng_key, count, one_of

__all__ = ["NUTS"]

_Values = dict[str, Any]
_Advance = Callable[[HMCState, jax.Array], tuple[HMCState, _Values]]

_LOGGER = logging.getLogger("kpp")
_INITS = {
    "uniform": numpyro.infer.init_to_uniform,
    "median": numpyro.infer.init_to_median,
    "sample": numpyro.infer.init_to_sample,
    "feasible": numpyro.infer.init_to_feasible,
}
_POSITION = "position."  # before the names of sites in the state: a site may have the name of another entry
_CHAINS = "chains"  # the axis of devices
_CHUNKS = 40  # the number of updates of a progress bar


class NUTS(AbstractInference):
    """Draw from the posterior by the No-U-Turn sampler of NumPyro.

    Args:
        num_warmup: Warm-up steps of each chain, which adapt step size and mass matrix and are not kept.
        num_samples: Draws kept per chain.
        num_chains: The number of chains.
        target_accept: The acceptance probability to which the step size is adapted, in (0, 1). A value closer to 1
            gives smaller steps and fewer divergences.
        chain_method: "sequential" (one chain after the other), "vectorized" (all in one program) or "parallel" (one
            chain per device).
        dense_mass: Whether the mass matrix is dense, rather than diagonal.
        max_tree_depth: A trajectory has at most ``2**max_tree_depth`` steps.
        init: The starting points of the chains: "uniform" (between -2 and 2 in unconstrained space), "median" or
            "sample" of the prior, or "feasible".
        progress: Whether to show progress bars.

    Raises:
        ValueError: If a number is out of range or a name is unknown.

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
        """Check the settings when they are given: NumPyro finds mistakes only later or not at all."""
        for name, least in (("num_warmup", 0), ("num_samples", 1), ("num_chains", 1), ("max_tree_depth", 1)):
            count(getattr(self, name), name, least)
        between(self.target_accept, "target_accept", 0, 1, ends=False)
        one_of(self.chain_method, "chain_method", ("sequential", "vectorized", "parallel"))
        one_of(self.init, "init", _INITS)

    def run(self, rng_key: RngKey, numpyro_model: NumpyroModel, data: Data, *, progress: bool = True) -> Posterior:
        """Draw; see `AbstractInference.run`.

        Raises:
            ConvergenceError: If a chain finds no point of positive density to start from.
        """
        rng_key = check_rng_key(rng_key)
        fixed = without_latents(numpyro_model, data, inspect_sites(numpyro_model, data), "NUTS")
        if fixed is not None:
            return fixed
        model = CalledWith(numpyro_model)
        states = _start(self, model, jax.random.split(rng_key, self.num_chains), data)
        _check_starts(states)
        return self._sample(model, data, states, self.num_warmup, self.num_samples, progress)

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
            rng_key: A JAX random key, different from the key of `run`.
            num_samples: The number of further draws per chain.
            numpyro_model: The model function that the chains belong to.
            data: Its arguments by name.
            state: `Posterior.state` of the chains.
            progress: Whether to show progress bars.

        Returns:
            The further draws only, and the state from which to continue.

        Raises:
            TypeError: If there are no chains, because the model has no latent sites.
        """
        if not state:
            raise TypeError("there are no chains to resume: the model has no latent sites")
        model = CalledWith(numpyro_model)
        keys = jax.random.split(check_rng_key(rng_key), state["step_size"].shape[0])
        return self._sample(model, data, _restart(self, model, keys, dict(state), data), 0, num_samples, progress)

    def kernel(self, model: Callable[[Data], Any], **options: Any) -> numpyro.infer.NUTS:
        """Return NumPyro's sampler of a model."""
        return numpyro.infer.NUTS(
            model,
            target_accept_prob=self.target_accept,
            dense_mass=self.dense_mass,
            max_tree_depth=self.max_tree_depth,
            **options,
        )

    def _sample(
        self, model: CalledWith, data: Data, states: HMCState, num_warmup: int, num_samples: int, progress: bool
    ) -> Posterior:
        """Run the chains from their states; all leaves have the axis of chains first."""
        chunk = math.ceil((num_warmup + num_samples) / _CHUNKS)
        steps, num_chains = (num_warmup, num_samples), states.potential_energy.shape[0]
        program = (self, num_warmup, chunk)
        if self.chain_method == "sequential":
            advance: _Advance = functools.partial(_advance, program, model, data)
            ends = []
            for chain in range(num_chains):
                label = f"chain {chain + 1} of {num_chains}" if progress else None
                ends.append(_run_chunks(advance, _select_chain(states, jnp.asarray(chain)), steps, chunk, label))
            last = _stack([state for state, _ in ends])
            kept = jax.tree.map(lambda *leaves: np.stack(leaves), *[values for _, values in ends])
        else:
            advance = functools.partial(_advance_together, program, model, data)
            if self.chain_method == "parallel":
                advance, states = _advance_parallel(program, model, data), _one_per_device(states)
            label = f"{num_chains} chains" if progress else None
            last, kept = _run_chunks(advance, states, steps, chunk, label, axis=1)
        return self._collect(model, data, last, kept)

    def _collect(self, model: CalledWith, data: Data, last: HMCState, kept: dict[str, Any]) -> Posterior:
        stats = {name: value for name, value in kept.items() if name != "z"}
        stats["lp"] = -stats.pop("potential_energy")
        stats["tree_depth"] = np.floor(np.log2(stats["n_steps"])).astype(int) + 1
        self._warn(stats)
        (inverse_mass_matrix,) = last.adapt_state.inverse_mass_matrix.values()
        state = {_POSITION + name: value for name, value in last.z.items()}
        state |= {"step_size": last.adapt_state.step_size, "inverse_mass_matrix": inverse_mass_matrix}
        attrs = {"inference": "NUTS", "divergences": int(stats["diverging"].sum()), "num_warmup": self.num_warmup}
        samples = _constrain(self, model, kept["z"], data)
        return Posterior(samples, {name: jnp.asarray(value) for name, value in stats.items()}, attrs, state)

    def _warn(self, stats: Mapping[str, np.ndarray]) -> None:
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


@eqx.filter_jit
def _start(nuts: NUTS, model: CalledWith, keys: jax.Array, data: Data) -> HMCState:
    """Return the states of new chains."""
    kernel = nuts.kernel(model, init_strategy=_INITS[nuts.init]())
    return jax.lax.map(lambda key: kernel.init(key, nuts.num_warmup, None, (data,), {}), keys)


@eqx.filter_jit
def _restart(nuts: NUTS, model: CalledWith, keys: jax.Array, chains: dict[str, jax.Array], data: Data) -> HMCState:
    """Return the states of chains that go on from where they stopped."""

    def restart(item: tuple[jax.Array, dict[str, jax.Array]]) -> HMCState:
        key, chain = item
        position = {name.removeprefix(_POSITION): value for name, value in chain.items() if name.startswith(_POSITION)}
        kernel = nuts.kernel(
            model,
            step_size=chain["step_size"],
            inverse_mass_matrix={tuple(sorted(position)): chain["inverse_mass_matrix"]},
            adapt_step_size=False,
            adapt_mass_matrix=False,
        )
        return kernel.init(key, 0, position, (data,), {})

    return jax.lax.map(restart, (keys, chains))


# The sampler, its number of warm-up steps, and the largest number of steps in a call.
_Program = tuple[NUTS, int, int]


def _steps(
    program: _Program, model: Callable[[Data], Any], data: Data, state: HMCState, count: jax.Array
) -> tuple[HMCState, _Values]:
    """Make `count` steps of one chain; return its state and the values of up to `chunk` steps."""
    nuts, num_warmup, chunk = program
    # A NumPyro kernel knows its model only after `init`. The values of `init` are not used here, so XLA removes them.
    kernel = nuts.kernel(model)
    kernel.init(state.rng_key, num_warmup, None, (data,), {})

    def step(index: jax.Array, carry: tuple[HMCState, _Values]) -> tuple[HMCState, _Values]:
        new = kernel.sample(carry[0], (data,), {})
        return new, jax.tree.map(lambda kept, value: kept.at[index].set(value), carry[1], _collected(new))

    empty = jax.tree.map(lambda leaf: jnp.zeros((chunk, *leaf.shape), leaf.dtype), _collected(state))
    return jax.lax.fori_loop(0, count, step, (state, empty))


# The model is an argument of these functions, so that fits of equal models and shapes share the compiled programs.


@eqx.filter_jit
def _advance(
    program: _Program, model: CalledWith, data: Data, state: HMCState, count: jax.Array
) -> tuple[HMCState, _Values]:
    return _steps(program, model, data, state, count)


@eqx.filter_jit
def _advance_together(
    program: _Program, model: CalledWith, data: Data, states: HMCState, count: jax.Array
) -> tuple[HMCState, _Values]:
    return jax.vmap(lambda state: _steps(program, model, data, state, count))(states)


def _advance_parallel(program: _Program, model: CalledWith, data: Data) -> _Advance:
    lifted, shared = model.lift(data)

    def advance(state: HMCState, count: jax.Array, shared: Data) -> tuple[HMCState, _Values]:
        return _steps(program, lifted, shared, state, count)

    spread = jax.pmap(advance, _CHAINS, in_axes=(0, None, None))
    return lambda states, count: spread(states, count, shared)


def _one_per_device(states: HMCState) -> HMCState:
    """Place each chain on a device, where `jax.pmap` leaves it; otherwise its second call would compile again."""
    devices = jax.local_devices()[: states.potential_energy.shape[0]]
    mesh = jax.sharding.Mesh(np.array(devices), (_CHAINS,))
    return jax.device_put(states, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(_CHAINS)))


@jax.jit
def _select_chain(states: HMCState, chain: jax.Array) -> HMCState:
    return jax.tree.map(lambda leaf: leaf[chain], states)


@jax.jit
def _stack(states: list[HMCState]) -> HMCState:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


@eqx.filter_jit
def _constrain(nuts: NUTS, model: CalledWith, positions: dict[str, AnyArray], data: Data) -> dict[str, jax.Array]:
    """Return the values of all sites at unconstrained positions (chain, draw, ...)."""
    kernel = nuts.kernel(model)
    kernel.init(jax.random.key(0), 0, None, (data,), {})
    return jax.lax.map(jax.tree_util.Partial(jax.lax.map, kernel.postprocess_fn((data,), {})), positions)


def _collected(state: HMCState) -> _Values:
    """Return the values of a step that are kept."""
    return {
        "z": state.z,
        "diverging": state.diverging,
        "n_steps": state.num_steps,
        "acceptance_rate": state.accept_prob,
        "energy": state.energy,
        "potential_energy": state.potential_energy,
        "step_size": state.adapt_state.step_size,
    }


def _run_chunks(
    advance: _Advance, state: HMCState, steps: tuple[int, int], chunk: int, label: str | None, axis: int = 0
) -> tuple[HMCState, _Values]:
    """Run warm-up and sampling in chunks of one compiled program, and concatenate the kept draws."""
    kept = []
    with progress_bar(sum(steps), label or "", unit="step", show=label is not None, delay=0.0) as bar:
        for phase, total in zip(("warmup", "sample"), steps, strict=True):
            for start in range(0, total, chunk):
                count = min(chunk, total - start)
                state, part = jax.block_until_ready(advance(state, jnp.asarray(count)))
                if phase == "sample":
                    kept.append(
                        jax.tree.map(lambda leaf, count=count: np.take(leaf, range(count), axis), jax.device_get(part))
                    )
                bar.update(count)
                bar.set_postfix_str(_progress(phase, state), refresh=False)
    return state, jax.tree.map(lambda *parts: np.concatenate(parts, axis), *kept)


def _progress(phase: str, state: HMCState) -> str:
    step_size, rate = np.mean(state.adapt_state.step_size), np.mean(state.mean_accept_prob)
    return f"{phase}, steps of size {step_size:.2g}, acceptance {rate:.2f}"


def _check_starts(states: HMCState) -> None:
    """Raise ConvergenceError if the density or its gradient is not finite at the start of a chain."""
    finite = np.isfinite(states.potential_energy)
    for leaf in jax.tree.leaves(states.z_grad):
        finite &= np.isfinite(leaf).reshape(leaf.shape[0], -1).all(1)
    lost = [chain + 1 for chain, found in enumerate(finite.tolist()) if not found]
    if lost:
        raise ConvergenceError(
            f"no start with a finite density and gradient was found for the chains {lost} of {len(finite)}; check the "
            'priors and the data, or choose another `init` (such as "median")'
        )
