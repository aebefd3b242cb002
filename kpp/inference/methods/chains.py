"""Run the chains of a sampler: one after the other, several at a time, all in one program, or in several processes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.infer
from numpyro.infer.hmc import HMCState
from tqdm.auto import tqdm

from kpp.inference.base import CalledWith, Data
from kpp.runtime.batching import announce, progress_bar
from kpp.runtime.threads import call_in_threads, num_cores

_Values = dict[str, Any]
_Advance = Callable[[HMCState, Any], tuple[HMCState, _Values]]

_CHAINS = "chains"  # the axis of devices
_CHUNKS = 40  # the number of updates of a progress bar for a chain


@runtime_checkable
class Sampler(Protocol):
    """What makes NumPyro's sampler of a model."""

    @property
    def schedule(self) -> int:
        """The number of warm-up steps that NumPyro is told."""

    def kernel(self, model: Callable[[Data], Any], **options: Any) -> numpyro.infer.NUTS:
        """Return NumPyro's sampler of a model."""


# The sampler, its number of warm-up steps, and the largest number of steps in a call.
_Program = tuple[Sampler, int, int]


def automatic_method(num_chains: int) -> str:
    """Return how chains run if the user does not say it; see `kpp.NUTS`."""
    if num_chains == 1:
        return "sequential"
    if jax.default_backend() == "cpu" or num_chains <= jax.local_device_count():
        return "parallel"
    return "vectorized"


def run_chains(
    sampler: Sampler,  # a static argument of compiled programs
    model: CalledWith,
    data: Data,
    states: HMCState,  # with the axis of chains first
    *,
    steps: tuple[int, int],  # of the warm-up, which are not kept, and of those that are kept
    method: str,
    progress: bool,
) -> tuple[HMCState, _Values]:
    """Advance all chains; return their last states, and the values of the kept steps, which lead with (chain, draw).

    Raises ValueError if the chains do not fit the devices of all processes, with the method "processes".
    """
    num_chains, chunk = states.potential_energy.shape[0], math.ceil(sum(steps) / _CHUNKS)
    program = (sampler, sampler.schedule if steps[0] else 0, chunk)
    on_devices = 1 < num_chains <= jax.local_device_count()
    label = f"{num_chains} chains" if num_chains > 1 else "1 chain"
    with progress_bar(num_chains * sum(steps), label, unit="step", show=progress, delay=0.0) as bar:
        if method == "vectorized":
            together: _Advance = functools.partial(_advance_together, program, model, data)
            _compile(together, states, bar)
            return _run_chunks(together, states, steps, chunk, bar)
        if method == "processes" or (method == "parallel" and on_devices):
            mesh = _mesh_of_processes(num_chains) if method == "processes" else _mesh(jax.local_devices()[:num_chains])
            sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(_CHAINS))  # a chain on each device
            placed = _place(states, sharding) if mesh.is_multi_process else jax.device_put(states, sharding)
            spread = _advance_on_devices(program, model, data, mesh)
            _compile(spread, placed, bar)
            last, values = _run_chunks(spread, placed, steps, chunk, bar)
            if method == "processes":  # the same values on all devices: those of this process
                last = jax.tree.map(lambda leaf: leaf.addressable_data(0), last)
            return last, values
        advance: _Advance = functools.partial(_advance, program, model, data)

        def run(chain: int) -> tuple[HMCState, _Values]:
            return _run_chunks(advance, _select_chain(states, jnp.asarray(chain)), steps, chunk, bar)

        _compile(advance, _select_chain(states, jnp.asarray(0)), bar)
        ends = call_in_threads(run, range(num_chains), num_cores() if method == "parallel" else 1)
    last = _stack([state for state, _ in ends])
    return last, jax.tree.map(lambda *leaves: np.concatenate(leaves), *[values for _, values in ends])


def _compile(advance: _Advance, state: HMCState, bar: tqdm) -> None:
    """Make no step, which compiles the program of all chunks and threads."""
    with announce(bar, "compiling"):
        advance(state, _steps_of(0))


def _run_chunks(
    advance: _Advance, state: HMCState, steps: tuple[int, int], chunk: int, bar: tqdm
) -> tuple[HMCState, _Values]:
    """Run warm-up and sampling in chunks of one compiled program, and concatenate the kept draws, (chain, draw, ...).

    The state is that of one chain, without an axis of chains, or of several.
    """
    shape = state.potential_energy.shape
    kept = []
    for phase, total in zip(("warmup", "sample"), steps, strict=True):
        for start in range(0, total, chunk):
            count = min(chunk, total - start)
            state, part = jax.block_until_ready(advance(state, _steps_of(count)))
            if phase == "sample":
                draws = jax.tree.map(lambda leaf: leaf if shape else leaf[None], jax.device_get(part))
                kept.append(jax.tree.map(lambda leaf, count=count: leaf[:, :count], draws))
            bar.set_postfix_str(_describe(phase, state), refresh=False)
            bar.update(count * math.prod(shape))
    return state, jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *kept)


def _steps_of(count: int) -> np.ndarray:
    """Return a number of steps, of the same type in every thread and with every setting of JAX."""
    return np.asarray(count, dtype=np.int32)


def _describe(phase: str, state: HMCState) -> str:
    step_size, rate = np.mean(state.adapt_state.step_size), np.mean(state.mean_accept_prob)
    return f"{phase}, steps of size {step_size:.2g}, acceptance {rate:.2f}"


def _steps(
    program: _Program, model: Callable[[Data], Any], data: Data, state: HMCState, count: jax.Array
) -> tuple[HMCState, _Values]:
    """Make `count` steps of one chain; return its state and the values of up to `chunk` steps."""
    sampler, num_warmup, chunk = program
    # A NumPyro kernel knows its model only after `init`. The values of `init` are not used here, so XLA removes them.
    kernel = sampler.kernel(model)
    kernel.init(state.rng_key, num_warmup, None, (data,), {})

    def step(index: jax.Array, carry: tuple[HMCState, _Values]) -> tuple[HMCState, _Values]:
        new = kernel.sample(carry[0], (data,), {})
        return new, jax.tree.map(lambda kept, value: kept.at[index].set(value), carry[1], _collected(new))

    empty = jax.tree.map(lambda leaf: jnp.zeros((chunk, *leaf.shape), leaf.dtype), _collected(state))
    return jax.lax.fori_loop(0, count, step, (state, empty))


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


# The model is an argument of these functions, so that fits of equal models and shapes share the compiled programs.


@eqx.filter_jit
def _advance(
    program: _Program, model: CalledWith, data: Data, state: HMCState, count: np.ndarray | jax.Array
) -> tuple[HMCState, _Values]:
    return _steps(program, model, data, state, jnp.asarray(count))


@eqx.filter_jit
def _advance_together(
    program: _Program, model: CalledWith, data: Data, states: HMCState, count: np.ndarray | jax.Array
) -> tuple[HMCState, _Values]:
    return jax.vmap(lambda state: _steps(program, model, data, state, jnp.asarray(count)))(states)


def _advance_on_devices(program: _Program, model: CalledWith, data: Data, mesh: jax.sharding.Mesh) -> _Advance:
    """Return the function that advances one chain on each device; no device waits for another within a call.

    If the devices belong to several processes, all results come to each process at the end of a call.
    """
    lifted, shared = model.lift(data)

    def advance(states: HMCState, count: jax.Array, shared: Data) -> tuple[HMCState, _Values]:
        ends = _steps(program, lifted, shared, jax.tree.map(lambda leaf: leaf[0], states), count)
        return jax.tree.map(lambda leaf: leaf[None], ends)

    one, all_devices = jax.sharding.PartitionSpec(_CHAINS), jax.sharding.PartitionSpec()
    replicated = jax.sharding.NamedSharding(mesh, all_devices)
    is_one_process = not mesh.is_multi_process
    spread = jax.jit(
        jax.shard_map(
            advance, mesh=mesh, in_specs=(one, all_devices, all_devices), out_specs=(one, one), check_vma=False
        ),
        out_shardings=None if is_one_process else replicated,
    )
    placed = shared if is_one_process else _place(shared, replicated)
    return lambda states, count: spread(states, count, placed)


def _place(tree: Any, sharding: jax.sharding.NamedSharding) -> Any:
    """Place arrays, which each process has as a whole, on devices of several processes, without communication."""

    def place(leaf: Any) -> jax.Array:
        if jnp.issubdtype(jnp.asarray(leaf).dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(place(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
        value = np.asarray(leaf)
        return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])

    return jax.tree.map(place, tree)


def _mesh(devices: list[jax.Device]) -> jax.sharding.Mesh:
    return jax.sharding.Mesh(np.array(devices), (_CHAINS,))


def _mesh_of_processes(num_chains: int) -> jax.sharding.Mesh:
    """Return the mesh of as many devices of each process, in their order, which must have one for each chain."""
    num_processes = jax.process_count()
    own = [[each for each in jax.devices() if each.process_index == process] for process in range(num_processes)]
    per_process, fewest = num_chains // num_processes, min(map(len, own))
    if num_chains % num_processes or per_process > fewest:
        raise ValueError(
            f"`num_chains` must be a multiple of the {num_processes} processes, and at most {num_processes * fewest} "
            f'with `chain_method` "processes", because each process has {fewest} devices; got {num_chains}'
        )
    return _mesh([device for devices in own for device in devices[:per_process]])


@jax.jit
def _select_chain(states: HMCState, chain: jax.Array) -> HMCState:
    return jax.tree.map(lambda leaf: leaf[chain], states)


@jax.jit
def _stack(states: list[HMCState]) -> HMCState:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
