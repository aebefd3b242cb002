"""NumPyro's No-U-Turn sampler, with chains that can be continued."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.infer
from numpyro.infer.hmc import HMCState

from kpp.foundation.validation import between, count, one_of
from kpp.inference.base import (
    AbstractInference,
    CalledWith,
    ConvergenceError,
    Data,
    NumpyroModel,
    Posterior,
    Site,
    inspect_sites,
    num_latent_numbers,
    without_latents,
)
from kpp.inference.example_models import linear_regression, regression_data
from kpp.inference.methods.chains import automatic_method, run_chains
from kpp.inference.methods.optimum import with_units
from kpp.inference.methods.starts import Starts, laplace_starts
from kpp.typing import AnyArray, RngKey

_LOGGER = logging.getLogger("kpp")
_INITS = {
    "uniform": numpyro.infer.init_to_uniform,
    "median": numpyro.infer.init_to_median,
    "sample": numpyro.infer.init_to_sample,
    "feasible": numpyro.infer.init_to_feasible,
}
_MAX_DENSE = 50  # the largest number of parameters of a dense mass matrix, by default
_MIN_ADAPTED = 400  # steps of warm-up from which on the covariance of Laplace's approximation is adapted
# NumPyro's windows for 150 steps of warm-up start at the steps 0, 75 and 100.
_SHORTEST_SCHEDULE, _LAST_WINDOW = 150, 50
_POSITION = "position."  # before the names of sites in the state: a site may have the name of another entry


class NUTS(AbstractInference):
    """Draw from the posterior by the No-U-Turn sampler of NumPyro.

    Args:
        num_warmup: Warm-up steps of each chain, which adapt step size and mass matrix and are not kept; None for 50
            where chains start from Laplace's approximation, and else 500.
        num_samples: Draws kept per chain.
        num_chains: The number of chains.
        target_accept: The acceptance probability to which the step size is adapted, in (0, 1). A value closer to 1
            gives smaller steps and fewer divergences.
        chain_method: "sequential" (one chain after the other), "parallel" (on the CPU as many chains at a time as there
            are cores, in threads; on several devices one chain per device), "vectorized" (all chains in one program,
            step by step) or "processes" (one chain on each device of all processes of `jax.distributed`, which all must
            fit the same model and receive all draws). By default "parallel" on the CPU or where there is a device for
            each chain, and "vectorized" on another device. The attribute ``chain_method`` of the fit tells which one it
            was.
        dense_mass: Whether the mass matrix is dense, rather than diagonal; None for a dense one where chains start from
            Laplace's approximation of at most 50 parameters. The covariance of the approximation is the first mass
            matrix. It is adapted where the warm-up has at least 400 steps.
        max_tree_depth: A trajectory has at most ``2**max_tree_depth`` steps.
        init: The starting points of the chains: "laplace" (widely dispersed draws from Laplace's approximation of the
            posterior, around all modes that a few searches find); "uniform" (between -2 and 2 in unconstrained space),
            "median" or "sample" of the prior, or "feasible". By default "laplace", but "uniform" for more than 50
            parameters or where no mode is found, as the log says.
        progress: Whether to show progress bars.

    Raises:
        ValueError: If a number is out of range or a name is unknown.

    Example:
        >>> inference = kpp.NUTS(num_warmup=50, num_samples=50, num_chains=2, progress=False)
        >>> fit = model.fit(jax.random.key(0), x, y, inference=inference, **quiet)
        >>> fit.draws["kernel.lengthscale"].shape
        (2, 50)

    References:
        M. D. Hoffman, A. Gelman (2014). The No-U-Turn sampler. JMLR 15, algorithm 6.
    """

    num_warmup: int | None = eqx.field(static=True, default=None)
    num_samples: int = eqx.field(static=True, default=500)
    num_chains: int = eqx.field(static=True, default=2)
    target_accept: float = eqx.field(static=True, default=0.8)
    chain_method: str | None = eqx.field(static=True, default=None)
    dense_mass: bool | None = eqx.field(static=True, default=None)
    max_tree_depth: int = eqx.field(static=True, default=10)
    init: str | None = eqx.field(static=True, default=None)
    progress: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        for name, least in (("num_warmup", 0), ("num_samples", 1), ("num_chains", 1), ("max_tree_depth", 1)):
            if name != "num_warmup" or self.num_warmup is not None:
                count(getattr(self, name), name, least)
        between(self.target_accept, "target_accept", 0, 1, ends=False)
        one_of(self.chain_method, "chain_method", (None, "sequential", "parallel", "vectorized", "processes"))
        one_of(self.init, "init", (None, "laplace", *_INITS))

    def run(self, rng_key: RngKey, numpyro_model: NumpyroModel, data: Data) -> Posterior:
        """Draw; see `AbstractInference.run`.

        Raises:
            ConvergenceError: If a chain finds no point of positive density to start from, or with ``init="laplace"`` no
                mode is found.
        """
        sites = inspect_sites(numpyro_model, data)
        if (fixed := without_latents(numpyro_model, data, sites, "NUTS")) is not None:
            return fixed
        model, keys = CalledWith(numpyro_model), jax.random.split(rng_key, self.num_chains)
        starts = self._laplace_starts(jax.random.fold_in(rng_key, 1), numpyro_model, data, sites)
        nuts = self._settle(starts)
        if starts is None:
            model = with_units(model, data)
            states = _start(nuts, model, keys, data)
        else:
            mass = starts.covariances if nuts.dense_mass else np.einsum("cii->ci", starts.covariances)
            states = _start_at(nuts, model, keys, (starts.positions, starts.energies, starts.gradients), mass, data)
        _check_starts(states)
        posterior = nuts._sample(model, data, states, nuts.num_warmup or 0, nuts.num_samples)
        found = {} if starts is None else {"modes": starts.num_modes, "gradients_before_warmup": starts.num_evaluations}
        return dataclasses.replace(posterior, attrs=posterior.attrs | {"init": nuts.init, **found})

    def _laplace_starts(
        self, rng_key: RngKey, numpyro_model: NumpyroModel, data: Data, sites: dict[str, Site]
    ) -> Starts | None:
        """Return the starts from Laplace's approximation, or None if they are not asked for or there are none."""
        if self.init not in (None, "laplace"):
            return None
        num_parameters = num_latent_numbers(sites)
        if self.init is None and num_parameters > _MAX_DENSE:
            _LOGGER.info("chains start at random, because there are more than %d parameters", _MAX_DENSE)
            return None
        try:
            return laplace_starts(rng_key, numpyro_model, data, sites, self.num_chains, self.progress)
        except ConvergenceError as error:
            if self.init == "laplace":
                raise
            _LOGGER.info("chains start at random: %s", error)
            return None

    def _settle(self, starts: Starts | None) -> NUTS:
        """Return the sampler with all defaults filled in."""
        warmup, dense = (500, False) if starts is None else (50, starts.covariances.shape[1] <= _MAX_DENSE)
        return dataclasses.replace(
            self,
            num_warmup=warmup if self.num_warmup is None else self.num_warmup,
            dense_mass=dense if self.dense_mass is None else self.dense_mass,
            init=(self.init or "uniform") if starts is None else "laplace",
        )

    def resume(
        self, rng_key: RngKey, num_samples: int, numpyro_model: NumpyroModel, data: Data, state: Mapping[str, jax.Array]
    ) -> Posterior:
        """Continue every chain from its last position with its own step size and mass matrix, without further warm-up.

        Raises:
            TypeError: If there are no chains, because the model has no latent sites.
        """
        if not state:
            raise TypeError("there are no chains to resume: the model has no latent sites")
        model, chains = CalledWith(numpyro_model).from_state(state)
        keys = jax.random.split(rng_key, state["step_size"].shape[0])
        # (chain, k, k), or (chain, k).
        nuts = dataclasses.replace(self, dense_mass=state["inverse_mass_matrix"].ndim == 3)
        return nuts._sample(model, data, _restart(nuts, model, keys, chains, data), 0, num_samples)

    def kernel(self, model: Callable[[Data], Any], **options: Any) -> numpyro.infer.NUTS:
        """Return NumPyro's sampler of a model."""
        options = {"adapt_mass_matrix": not self._keeps_mass, **options}
        return numpyro.infer.NUTS(
            model,
            target_accept_prob=self.target_accept,
            dense_mass=bool(self.dense_mass),
            max_tree_depth=self.max_tree_depth,
            **options,
        )

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractInference, NumpyroModel, Data]]:
        yield cls(num_warmup=50, num_samples=50, progress=False), linear_regression, regression_data(rng_key)

    @property
    def _keeps_mass(self) -> bool:
        """Whether the covariance of Laplace's approximation stays the mass matrix."""
        return self.init == "laplace" and (self.num_warmup or 0) < _MIN_ADAPTED

    @property
    def schedule(self) -> int:
        """The number of warm-up steps that NumPyro is told.

        NumPyro adapts the mass matrix in windows, and the step size from anew after each. A short warm-up that keeps
        the mass matrix starts in the last window of a longer one, so that the step size is adapted once.
        """
        warmup = self.num_warmup or 0
        return _SHORTEST_SCHEDULE if self._keeps_mass and 0 < warmup <= _LAST_WINDOW else warmup

    def _sample(self, model: CalledWith, data: Data, states: HMCState, num_warmup: int, num_samples: int) -> Posterior:
        """Run the chains from their states, whose leaves have the axis of chains first, and collect the draws."""
        method = self.chain_method or automatic_method(states.potential_energy.shape[0])
        last, kept = run_chains(
            self, model, data, states, steps=(num_warmup, num_samples), method=method, progress=self.progress
        )
        posterior = self._collect(model, data, last, kept)
        return dataclasses.replace(posterior, attrs=posterior.attrs | {"chain_method": method})

    def _collect(self, model: CalledWith, data: Data, last: HMCState, kept: dict[str, Any]) -> Posterior:
        stats = {name: value for name, value in kept.items() if name != "z"}
        stats["lp"] = -stats.pop("potential_energy")
        # A tree of depth d has from 2^(d-1) to 2^d - 1 steps.
        stats["tree_depth"] = np.floor(np.log2(stats["n_steps"])).astype(int) + 1
        self._warn(stats)
        (inverse_mass_matrix,) = last.adapt_state.inverse_mass_matrix.values()
        state = {_POSITION + name: value for name, value in last.z.items()}
        state |= model.state() | {"step_size": last.adapt_state.step_size, "inverse_mass_matrix": inverse_mass_matrix}
        attrs = {"inference": "NUTS", "divergences": int(stats["diverging"].sum()), "num_warmup": self.num_warmup}
        samples = _constrain(self, model, kept["z"], data)
        return Posterior(samples, {name: jnp.asarray(value) for name, value in stats.items()}, attrs, state)

    def _warn(self, stats: Mapping[str, np.ndarray]) -> None:
        total = stats["diverging"].size
        diverging = int(stats["diverging"].sum())
        if diverging:
            _LOGGER.warning(
                "%d of %d draws ended in a divergence, so that the posterior may be biased; raise `target_accept` (it "
                "is %g), use tighter priors or another parametrization",
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
                "`max_tree_depth` or standardize the data",
                deep,
                total,
                self.max_tree_depth,
            )


@eqx.filter_jit
def _start(nuts: NUTS, model: CalledWith, keys: jax.Array, data: Data) -> HMCState:
    """Return the states of new chains."""
    kernel = nuts.kernel(model, init_strategy=_INITS[nuts.init or "uniform"]())
    return jax.lax.map(lambda key: kernel.init(key, nuts.num_warmup, None, (data,), {}), keys)


@eqx.filter_jit
def _start_at(
    nuts: NUTS,
    model: CalledWith,
    keys: jax.Array,
    points: tuple[dict[str, AnyArray], AnyArray, dict[str, AnyArray]],
    inverse_mass_matrices: AnyArray,
    data: Data,
) -> HMCState:
    """Return the states of new chains at given positions, with known energies and gradients."""
    skipped = nuts.schedule - (nuts.num_warmup or 0)

    def start(item: tuple[jax.Array, Any, jax.Array]) -> HMCState:
        key, (position, energy, gradient), mass = item
        kernel = nuts.kernel(model, inverse_mass_matrix={tuple(sorted(position)): mass})
        # NumPyro computes energy and gradient again, but XLA removes what is not used, and need not compile it. The
        # first step overwrites the total energy.
        state = kernel.init(key, nuts.schedule, position, (data,), {})
        state = state._replace(potential_energy=energy, energy=energy, z_grad=gradient)
        if not skipped:
            return state
        last_window = state.adapt_state._replace(window_idx=jnp.full_like(state.adapt_state.window_idx, 2))
        return state._replace(i=jnp.full_like(state.i, skipped), adapt_state=last_window)

    return jax.lax.map(start, (keys, points, inverse_mass_matrices))


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


@eqx.filter_jit
def _constrain(nuts: NUTS, model: CalledWith, positions: dict[str, AnyArray], data: Data) -> dict[str, jax.Array]:
    """Return the values of all sites at unconstrained positions (chain, draw, ...)."""
    kernel = nuts.kernel(model)
    kernel.init(jax.random.key(0), 0, None, (data,), {})  # before `init`, NumPyro's `postprocess_fn` is the identity
    return jax.lax.map(jax.tree_util.Partial(jax.lax.map, kernel.postprocess_fn((data,), {})), positions)


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
