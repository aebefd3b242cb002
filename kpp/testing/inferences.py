"""The laws of an inference. Each is a check of one example: an inference, a NumPyro model and its data."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer.util import log_density

from kpp.inference import AbstractInference, Posterior, inspect_sites
from kpp.inference.toolkit import describe_inference, rebuild_inference
from kpp.storage.serialization import to_spec
from kpp.testing.compare import assert_raises, laws_in, once_per_example, spec_copy

Model = Callable[..., Any]
Data = dict[str, Any]

_SAMPLE_DIMS = ("chain", "draw")
_FURTHER = 3  # draws that are asked for where an inference continues
_SHOWN = 10  # draws whose density is computed


def draws_all_sites(inference: AbstractInference, model: Model, data: Data) -> None:
    """Run returns finite draws of all latent and deterministic sites, of shape (chain, draw, *event)."""
    posterior = _run(inference, model, data)
    assert isinstance(posterior, Posterior), f"`run` returns {type(posterior).__name__}"
    _assert_draws(posterior, model, data)


def draws_are_in_the_support(inference: AbstractInference, model: Model, data: Data) -> None:
    """The draws of each site are in the support of its distribution, with finite joint density."""
    latent = _latent_sites(model, data)
    for draw in _draws(_run(inference, model, data), latent):
        density, trace = log_density(model, (), data, draw)
        for name in latent:
            inside = np.all(trace[name]["fn"].support(draw[name]))
            assert inside, f"a draw of {name} is outside the support of its distribution: {draw[name]}"
        assert np.isfinite(density), f"the log density is {density} at the draw {draw}"


def draws_fit_the_data(inference: AbstractInference, model: Model, data: Data) -> None:
    """The observations are more probable under the draws than under draws from the prior."""
    latent = _latent_sites(model, data)
    prior = numpyro.infer.Predictive(model, num_samples=_SHOWN)(jax.random.key(1), **data)
    before = [_log_likelihood(model, data, {name: prior[name][i] for name in latent}) for i in range(_SHOWN)]
    after = [_log_likelihood(model, data, draw) for draw in _draws(_run(inference, model, data), latent)]
    assert np.mean(after) > np.mean(before), (
        f"the mean log-likelihood of the draws is {np.mean(after):.4g}, and {np.mean(before):.4g} for draws from the "
        "prior"
    )


def same_key_same_draws(inference: AbstractInference, model: Model, data: Data) -> None:
    """The same key, model and data give the same draws."""
    again = inference.run(jax.random.key(0), model, data)
    for name, draws in _run(inference, model, data).samples.items():
        assert np.array_equal(draws, again.samples[name]), f"the draws of {name} differ between two runs with one key"


def diagnostics_have_named_axes(inference: AbstractInference, model: Model, data: Data) -> None:
    """Diagnostics have the axes (chain, draw), or those that `stats_dims` names."""
    posterior = _run(inference, model, data)
    sizes = _sizes(posterior)
    for name, values in posterior.sample_stats.items():
        shape, dims = jnp.shape(values), posterior.stats_dims.get(name)
        if dims is None:
            assert shape == sizes, f"the diagnostic {name} has shape {shape}, the draws have {_SAMPLE_DIMS} = {sizes}"
        else:
            assert len(dims) == len(shape), f"the diagnostic {name} has shape {shape}, and `stats_dims` names {dims}"


def records_what_ran(inference: AbstractInference, model: Model, data: Data) -> None:
    """The attributes name the inference and can be written as JSON; the state is a dict of arrays."""
    posterior = _run(inference, model, data)
    assert posterior.attrs.get("inference"), f"the attributes name no inference: {sorted(posterior.attrs)}"
    try:
        json.dumps(posterior.attrs)
    except TypeError as error:
        raise AssertionError(f"the attributes cannot be written as JSON: {error}") from error
    for name, value in posterior.state.items():
        assert isinstance(value, (jax.Array, np.ndarray)), f"the state {name} is a {type(value).__name__}, not an array"


def needs_no_latent_sites(inference: AbstractInference, model: Model, data: Data) -> None:
    """A model without latent sites gives one chain of one draw."""
    posterior = inference.run(jax.random.key(0), _without_latents, {"y": jnp.ones(2)})
    found = {name: jnp.shape(value) for name, value in posterior.samples.items()}
    assert found == {"half": (1, 1)}, f"the draws of a model with the deterministic site `half` have shapes {found}"


def continues_from_its_state(inference: AbstractInference, model: Model, data: Data) -> None:
    """`resume` and `draw` return further draws of all sites, or raise a TypeError that says that they cannot."""
    posterior = _run(inference, model, data)
    key, chains = jax.random.key(2), _sizes(posterior)[0]
    continued = (
        ("resume", chains, lambda: inference.resume(key, _FURTHER, model, data, posterior.state)),
        ("draw", 1, lambda: inference.draw(key, _FURTHER, model, data, posterior.state)),
    )
    for name, expected, call in continued:
        try:
            further = call()
        except TypeError:  # raised by the abstract class
            continue
        assert _sizes(further) == (expected, _FURTHER), (
            f"`{name}` of {_FURTHER} draws returns {_SAMPLE_DIMS} = {_sizes(further)}, expected {(expected, _FURTHER)}"
        )
        _assert_draws(further, model, data)


def is_saved_with_a_fit(inference: AbstractInference, model: Model, data: Data) -> None:
    """The fields can be written as JSON, and the inference that is read again is the same."""
    copy = rebuild_inference(json.loads(json.dumps(describe_inference(inference))))
    assert copy == inference, f"the inference read again is {copy}, not {inference}"


def survives_the_round_trip_through_a_spec(inference: AbstractInference, model: Model, data: Data) -> None:
    """A registered inference written as JSON and read back is the same."""
    copy = spec_copy(inference)
    assert copy is None or to_spec(copy) == to_spec(inference), f"the copy is {copy}, the inference {inference}"


def refuses_a_wrong_key(inference: AbstractInference, model: Model, data: Data) -> None:
    """An integer as the key raises a TypeError that names `rng_key`."""
    run: Any = inference.run
    message = assert_raises(TypeError, lambda: run(0, model, data), "an integer for `rng_key`")
    assert "`rng_key`" in message, f"the message does not name `rng_key`: {message}"


LAWS = laws_in(globals())


def _without_latents(y: jax.Array) -> None:
    numpyro.deterministic("half", jnp.asarray(0.5))
    numpyro.sample("y", dist.Normal(0.0, 1.0).expand([2]).to_event(1), obs=y)


@once_per_example
def _run(inference: AbstractInference, model: Model, data: Data) -> Posterior:
    return inference.run(jax.random.key(0), model, data)


def _latent_sites(model: Model, data: Data) -> list[str]:
    return [name for name, site in inspect_sites(model, data).items() if site.kind == "latent"]


def _sizes(posterior: Posterior) -> tuple[int, ...]:
    return next(iter(posterior.samples.values())).shape[:2]


def _assert_draws(posterior: Posterior, model: Model, data: Data) -> None:
    sites = {name: site for name, site in inspect_sites(model, data).items() if site.kind != "observed"}
    missing = sorted(set(sites) - set(posterior.samples))
    assert not missing, f"there are no draws of the sites {missing}; there are {sorted(posterior.samples)}"
    for name, site in sites.items():
        draws = posterior.samples[name]
        expected = (*_sizes(posterior), *site.shape)
        assert jnp.shape(draws) == expected, f"the draws of {name} have shape {jnp.shape(draws)}, expected {expected}"
        assert np.isfinite(draws).all(), f"the draws of {name} are not finite"


def _draws(posterior: Posterior, latent: list[str]) -> list[dict[str, jax.Array]]:
    """Return some draws of the latent sites, evenly spaced over all chains."""
    flat = {
        name: np.asarray(posterior.samples[name]).reshape(-1, *posterior.samples[name].shape[2:]) for name in latent
    }
    total = len(next(iter(flat.values())))
    chosen = np.unique(np.linspace(0, total - 1, _SHOWN).round().astype(int))
    return [{name: jnp.asarray(values[i]) for name, values in flat.items()} for i in chosen]


def _log_likelihood(model: Model, data: Data, draw: dict[str, jax.Array]) -> float:
    """Return the log density of the observations given a draw of the latent sites."""
    trace = log_density(model, (), data, draw)[1]
    observed = [site for site in trace.values() if site["type"] == "sample" and site["is_observed"]]
    return sum(float(jnp.sum(site["fn"].log_prob(site["value"]))) for site in observed)
