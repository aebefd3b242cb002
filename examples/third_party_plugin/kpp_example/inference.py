"""A new inference: the No-U-Turn sampler of BlackJAX in place of NumPyro's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer.util import initialize_model

from kpp.inference import AbstractInference, CalledWith, Posterior, inspect_sites, without_latents
from kpp.validation import between, check_rng_key, count

_POSITION = "position."  # before the names of sites in the state: a site may have the name of another entry


class BlackJAXNUTS(AbstractInference):
    """Draw from the posterior by the No-U-Turn sampler of BlackJAX, after its window adaptation.

    Args:
        num_warmup: Warm-up steps of each chain, which adapt step size and mass matrix and are not kept.
        num_samples: Draws kept per chain.
        num_chains: The number of chains.
        target_accept: The acceptance probability to which the step size is adapted, in (0, 1).
        progress: Not used; every inference has this field.

    References:
        Cabezas, Corenflos, Lao and Louf, BlackJAX: Composable Bayesian inference in JAX, 2024.
    """

    num_warmup: int = eqx.field(static=True, default=500)
    num_samples: int = eqx.field(static=True, default=500)
    num_chains: int = eqx.field(static=True, default=2)
    target_accept: float = eqx.field(static=True, default=0.8)
    progress: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        for name in ("num_warmup", "num_samples", "num_chains"):
            count(getattr(self, name), name)
        between(self.target_accept, "target_accept", 0, 1, ends=False)

    def run(self, rng_key: Any, numpyro_model: Any, data: dict[str, Any], *, progress: bool = True) -> Posterior:
        start_key, adapt_key, sample_key = jax.random.split(check_rng_key(rng_key), 3)
        fixed = without_latents(numpyro_model, data, inspect_sites(numpyro_model, data), "BlackJAXNUTS")
        if fixed is not None:
            return fixed
        model = _Unconstrained(numpyro_model, data, jax.random.split(start_key, self.num_chains))
        warmup = _blackjax().window_adaptation(
            _blackjax().nuts, model.log_density, target_acceptance_rate=self.target_accept
        )

        @jax.jit
        def adapt(keys: jax.Array, positions: Any) -> Any:
            def one(chain: Any) -> Any:
                (state, parameters), _ = warmup.run(*chain, num_steps=self.num_warmup)
                return state.position, parameters["step_size"], parameters["inverse_mass_matrix"]

            return jax.lax.map(one, (keys, positions))

        chains = adapt(jax.random.split(adapt_key, self.num_chains), model.starts)
        return _sample(model, sample_key, self.num_samples, chains)

    def resume(
        self,
        rng_key: Any,
        num_samples: int,
        numpyro_model: Any,
        data: dict[str, Any],
        state: Mapping[str, jax.Array],
        *,
        progress: bool = True,
    ) -> Posterior:
        if not state:
            raise TypeError("there are no chains to resume: the model has no latent sites")
        start_key, sample_key = jax.random.split(check_rng_key(rng_key))
        model = _Unconstrained(numpyro_model, data, jax.random.split(start_key, state["step_size"].shape[0]))
        positions = {name.removeprefix(_POSITION): value for name, value in state.items() if name.startswith(_POSITION)}
        return _sample(model, sample_key, num_samples, (positions, state["step_size"], state["inverse_mass_matrix"]))

    @classmethod
    def examples(cls, rng_key: Any) -> Iterator[tuple[BlackJAXNUTS, Callable[..., None], dict[str, Any]]]:
        """Yield (inference, numpyro_model, data): the mean and the scale of some numbers."""
        y = 4.0 + 0.5 * jax.random.normal(rng_key, (20,))
        yield cls(num_warmup=200, num_samples=50), _numbers, {"y": y}


class _Unconstrained:
    """A NumPyro model as a log density in unconstrained coordinates, with a random start for each key."""

    def __init__(self, numpyro_model: Any, data: dict[str, Any], keys: jax.Array) -> None:
        info = initialize_model(keys, CalledWith(numpyro_model), model_args=(data,))
        self.starts, self.constrain, self._potential = info.param_info.z, info.postprocess_fn, info.potential_fn

    def log_density(self, position: Any) -> jax.Array:
        return -self._potential(position)


def _sample(model: _Unconstrained, rng_key: jax.Array, num_samples: int, chains: tuple[Any, ...]) -> Posterior:
    """Draw from all chains, given by their positions, step sizes and mass matrices, one chain after the other."""

    def one(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        keys, position, step_size, inverse_mass_matrix = arguments
        nuts = _blackjax().nuts(model.log_density, step_size, inverse_mass_matrix)

        def step(state: Any, key: jax.Array) -> tuple[Any, Any]:
            state, info = nuts.step(key, state)
            stats = {
                "lp": state.logdensity,
                "diverging": info.is_divergent,
                "n_steps": info.num_integration_steps,
                "accept_prob": info.acceptance_rate,
            }
            return state, (model.constrain(state.position), stats)

        last, (samples, stats) = jax.lax.scan(step, nuts.init(position), keys)
        return last.position, samples, stats

    keys = jax.random.split(rng_key, (chains[1].shape[0], num_samples))
    positions, samples, stats = jax.jit(lambda arguments: jax.lax.map(one, arguments))((keys, *chains))
    state = {_POSITION + name: value for name, value in positions.items()}
    state |= {"step_size": chains[1], "inverse_mass_matrix": chains[2]}
    attrs = {"inference": "BlackJAXNUTS", "divergences": int(stats["diverging"].sum())}
    return Posterior(samples, stats, attrs, state)


def _blackjax() -> Any:
    try:
        import blackjax
    except ImportError as error:
        raise ImportError("BlackJAXNUTS needs blackjax: pip install 'kpp-example[blackjax]'") from error
    return blackjax


def _numbers(y: jax.Array | None = None) -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    numpyro.deterministic("variance", jnp.square(scale))
    numpyro.sample("y", dist.Normal(mean, scale).expand([20]).to_event(1), obs=y)
