"""The families of variational inference: NumPyro's automatic guides and own programs; draws and parameters of both."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.infer.autoguide as autoguide
from numpyro import handlers
from numpyro.infer import init_to_median

from kpp.inference.base import CalledWith, Data, Site, evaluate_draws, num_latent_numbers
from kpp.typing import RngKey


class _InOrder(autoguide.AutoGuide):
    """A guide that keeps its sites in the order of the model: in a compiled program JAX sorts them by name.

    The draws of a key, and the layout of the parameters in a file, depend on this order.
    """

    _init_locs: dict[str, jax.Array]

    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        super()._setup_prototype(*args, **kwargs)
        self._init_locs = {name: self._init_locs[name] for name in self.prototype_trace if name in self._init_locs}


class _Normal(autoguide.AutoNormal, _InOrder):
    pass


class _MultivariateNormal(autoguide.AutoMultivariateNormal, _InOrder):
    pass


class _LowRankMultivariateNormal(autoguide.AutoLowRankMultivariateNormal, _InOrder):
    pass


GUIDES: dict[str, Callable[..., Any]] = {
    "normal": _Normal,
    "multivariate_normal": _MultivariateNormal,
    "low_rank_multivariate_normal": _LowRankMultivariateNormal,
    "iaf_normal": autoguide.AutoIAFNormal,
    "bnaf_normal": autoguide.AutoBNAFNormal,
}
_FLOWS = ("iaf_normal", "bnaf_normal")


def build_guide(guide: Any, model: CalledWith, sites: Mapping[str, Site]) -> Callable[[Data], Any]:
    """Return the guide of a model, from its name or from a function of the model that returns a guide.

    Raises TypeError if the function does not return a guide, and ValueError for a flow of a model with a single number.
    """
    size = num_latent_numbers(sites)
    if isinstance(guide, str) and guide in _FLOWS and size < 2:
        raise ValueError(f"`guide` {guide!r} needs a model with two or more latent numbers, got {size}; use 'normal'")
    # A search from other starts than the priors' medians fails where the targets are very small or very large numbers.
    found = GUIDES[guide](model, init_loc_fn=init_to_median) if isinstance(guide, str) else guide(model)
    if isinstance(found, autoguide.AutoGuide):
        return found
    if not callable(found):
        raise TypeError(
            "`guide` must be a name or a function of the NumPyro model that returns a guide, got one that returns a "
            f"{type(found).__name__}"
        )
    return CalledWith(found, subsample=True)


def find_parameters(guide: Callable[[Data], Any], data: Data, sites: Mapping[str, Site]) -> dict[str, Any]:
    """Run a guide, which must have all latent sites of the model, once; return its initial parameters."""
    with handlers.block():
        trace = handlers.trace(handlers.seed(guide, jax.random.key(0))).get_trace(data)
    missing = sorted(name for name, site in sites.items() if site.kind == "latent" and name not in trace)
    if missing:
        raise ValueError(f"`guide` must sample all latent sites of the model, but it lacks {missing}")
    return {name: site["value"] for name, site in trace.items() if site["type"] == "param"}


def draw_from_guide(
    rng_key: RngKey,
    num_samples: int,
    guide: Callable[[Data], Any],
    model: CalledWith,
    sites: Mapping[str, Site],
    data: Data,
    parameters: Mapping[str, Any],
) -> dict[str, jax.Array]:
    """Draw latent sites, and compute the deterministic ones; return one chain, site -> (1, num_samples, ...)."""
    keys = jax.random.split(rng_key, num_samples)
    if isinstance(guide, autoguide.AutoGuide):
        # One sample after the other, so that deterministic sites need the memory of a single sample.
        draw = jax.jit(lambda keys, values: jax.lax.map(lambda key: guide.sample_posterior(key, values), keys))
        return {name: value[None] for name, value in draw(keys, dict(parameters)).items()}
    latent = [name for name, site in sites.items() if site.kind == "latent"]

    def one(key: RngKey) -> dict[str, jax.Array]:
        seeded = handlers.seed(handlers.substitute(guide, dict(parameters)), key)
        trace = handlers.trace(seeded).get_trace(data)
        return {name: trace[name]["value"] for name in latent}

    draws = {name: value[None] for name, value in jax.lax.map(one, keys).items()}
    return evaluate_draws(model, tuple(sites), draws, data)[0]


def flatten_parameters(parameters: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Return the arrays of parameters that may be nested, as those of a network are, by names of their paths."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(dict(parameters))
    return {_name(path): jnp.asarray(leaf) for path, leaf in leaves}


def unflatten_parameters(flat: Mapping[str, jax.Array], like: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters in the structure of others; the inverse of `flatten_parameters`."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(dict(like))
    return dict(jax.tree.unflatten(structure, [flat[_name(path)] for path, _ in leaves]))


_name = functools.partial(jax.tree_util.keystr, simple=True, separator=".")
