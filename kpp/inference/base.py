"""The contract of every inference, the posterior that it returns, and the inspection of a model's sites."""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree
from numpyro import handlers
from numpyro.infer import init_to_feasible
from numpyro.infer.util import log_density
from numpyro.primitives import Messenger

from kpp.foundation.modules import AbstractModule
from kpp.inference.methods.units import in_units
from kpp.typing import RngKey

NumpyroModel = Callable[..., Any]
Data = dict[str, Any]
_UNIT = "unit."  # before the names of sites in the state


class ConvergenceError(RuntimeError):
    """An optimization did not converge to a mode."""


@dataclasses.dataclass(frozen=True)
class Posterior:
    """The result of an inference.

    Args:
        samples: For each latent and deterministic site its draws, of shape (chain, draw, *event).
        sample_stats: Diagnostics by name, of shape (chain, draw), or with the axes that `stats_dims` names.
        attrs: Facts about the run to keep: numbers, text, booleans, lists.
        state: Arrays by name from which the inference can continue (`resume`) or draw again (`draw`).
        stats_dims: Names of all axes, for diagnostics whose axes are not (chain, draw).
    """

    samples: dict[str, jax.Array]
    sample_stats: dict[str, jax.Array]
    attrs: dict[str, Any]
    state: dict[str, jax.Array] = dataclasses.field(default_factory=dict)
    stats_dims: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Site:
    """A site of a NumPyro model.

    Args:
        name: Its name.
        kind: "latent" (drawn), "observed", "deterministic" or "param".
        shape: The shape of its value.
        plates: The names of the plates around it, one per axis; None for an axis without a plate.
        discrete: Whether it is latent and has discrete values.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    plates: tuple[str | None, ...]
    discrete: bool = False


class _Fields:
    """The fields of every final class, in a plain class so that type checkers see them."""

    progress: eqx.AbstractVar[bool]


class AbstractInference(_Fields, AbstractModule):
    """An inference method: it returns draws from the posterior of a NumPyro model.

    Fields are plain numbers and text, so that a fit can be saved together with its inference.

    Attributes:
        approximates: Whether the posterior is replaced by a fitted distribution or by its mode. Then R-hat and
            effective sample sizes say nothing about the accuracy, and reports leave them out. False for samplers of
            the posterior itself.
    """

    approximates: ClassVar[bool] = False

    @abc.abstractmethod
    def run(self, rng_key: RngKey, numpyro_model: NumpyroModel, data: Data) -> Posterior:
        """Run the inference.

        Law: the same key, model and data give the same posterior; a model without latent sites gives one chain of one
        draw.

        Args:
            rng_key: A JAX random key.
            numpyro_model: A NumPyro model function; it is called as ``numpyro_model(**data)``.
            data: Its arguments by name, pytrees of arrays.

        Returns:
            The draws, the diagnostics and the state from which to continue.
        """

    def draw(
        self, rng_key: RngKey, num_samples: int, numpyro_model: NumpyroModel, data: Data, state: Mapping[str, jax.Array]
    ) -> Posterior:
        """Draw `num_samples` new draws, as one chain, from the approximate posterior that `run` has found.

        Raises:
            TypeError: If the inference does not keep an approximate posterior.
        """
        raise TypeError(
            f"{type(self).__name__} keeps no distribution to draw from; kpp.Laplace and kpp.SVI do, and the chains of "
            "kpp.NUTS can be continued by `resume`"
        )

    def resume(
        self, rng_key: RngKey, num_samples: int, numpyro_model: NumpyroModel, data: Data, state: Mapping[str, jax.Array]
    ) -> Posterior:
        """Continue the chains of `run`, and return the further draws only.

        Args:
            rng_key: A JAX random key, different from the key of `run`.
            num_samples: The number of further draws per chain.
            numpyro_model: The model function that the chains belong to.
            data: Its arguments by name.
            state: `Posterior.state` of the chains.

        Raises:
            TypeError: If the inference has no chains.
        """
        raise TypeError(f"{type(self).__name__} keeps no state of chains to resume; only kpp.NUTS does")


@runtime_checkable
class ApproximateMarginal(Protocol):
    """A distribution of observations whose latent values are integrated out by an approximation."""

    def draw_latents(self, rng_key: jax.Array, value: Any) -> tuple[dict[str, jax.Array], jax.Array]:
        r"""Draw the latent values from their approximate law given the observations.

        Returns the values by site, and the log of the weight that makes draws of z and of the posterior under the
        approximate density q(y) of this distribution exact, :math:`\log p(y, z) - \log q(z) - \log q(y)`.
        """


def inspect_sites(
    numpyro_model: NumpyroModel, data: Data, types: Sequence[str] = ("sample", "deterministic")
) -> dict[str, Site]:
    """Return the sites of a model by name, without computing any value.

    Args:
        numpyro_model: The model function.
        data: Its arguments by name.
        types: NumPyro's types of the sites to return; "param" is one more.

    Returns:
        Latent, observed and deterministic sites (and parameters) in the order of the model.
    """
    sites: dict[str, Site] = {}

    def look(arguments: Data) -> None:
        for name, site in trace(numpyro_model, arguments).items():
            if site["type"] in types:
                sites[name] = _describe(name, site)

    jax.eval_shape(look, data)
    return sites


def without_latents(numpyro_model: NumpyroModel, data: Data, sites: Mapping[str, Site], name: str) -> Posterior | None:
    """Return the posterior of a model without latent sites, one chain of one draw; None if it has latent sites."""
    if any(site.kind == "latent" for site in sites.values()):
        return None
    names = [key for key, site in sites.items() if site.kind == "deterministic"]

    @jax.jit
    def deterministic(data: Data) -> dict[str, jax.Array]:
        found = trace(numpyro_model, data)
        return {key: jnp.asarray(found[key]["value"])[None, None] for key in names}

    fixed = deterministic(data) if names else {}
    return Posterior(fixed, {}, {"inference": name, "latent_sites": 0})


class whole_plates(Messenger):
    """A NumPyro effect handler: every plate holds all its members and ignores ``subsample_size``."""

    def process_message(self, msg: dict[str, Any]) -> None:
        """Set the members of a plate."""
        if msg["type"] == "plate":
            size = msg["args"][0]
            msg["args"], msg["value"] = (size, size), jnp.arange(size)


def trace(numpyro_model: NumpyroModel, data: Data, *, subsample: bool = False) -> dict[str, Any]:
    """Run a model once and return its trace, on all data or on a subsample where plates draw one.

    Latent sites take feasible values, because improper priors cannot be drawn from.
    """
    seeded = handlers.seed(numpyro_model if subsample else whole_plates(numpyro_model), jax.random.key(0))
    return handlers.trace(handlers.substitute(seeded, substitute_fn=init_to_feasible())).get_trace(**data)


def as_arguments(tree: PyTree) -> PyTree:
    """Return a pytree with arrays in place of its floats.

    Compiled functions take arrays as arguments. A Python float, for example in a prior, would be a constant of the
    program: each new value would be compiled again.
    """
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, float) else leaf, tree)


class CalledWith(eqx.Module):
    """A model as a function of one dict, so that its argument names cannot clash with NumPyro's own.

    It is a pytree whose leaves are the model's arrays and numbers. They become arguments of compiled functions, so a
    program that is compiled for one model is used for every other model of the same shapes.

    Args:
        numpyro_model: The model function; the method of an Equinox module brings its arrays along.
        subsample: Whether plates with a ``subsample_size`` draw subsamples; only unbiased estimates of a bound (SVI)
            allow this. Otherwise plates hold all their members.
        units: The units of the unconstrained coordinates of some sites; see `kpp.inference.methods.units.in_units`.
    """

    numpyro_model: NumpyroModel = eqx.field(converter=as_arguments)
    subsample: bool = eqx.field(static=True, default=False)
    units: dict[str, jax.Array] = eqx.field(default_factory=dict)

    def __call__(self, data: Data) -> Any:
        """Run the model."""
        model = in_units(self.numpyro_model, self.units) if self.units else self.numpyro_model
        return model(**data) if self.subsample else whole_plates(model)(**data)

    def state(self) -> dict[str, jax.Array]:
        """Return the units as entries of `Posterior.state`."""
        return {_UNIT + name: unit for name, unit in self.units.items()}

    def from_state(self, state: Mapping[str, jax.Array]) -> tuple["CalledWith", dict[str, jax.Array]]:
        """Return the model with the units that are in a `Posterior.state`, and the other entries of the state."""
        units = {name.removeprefix(_UNIT): unit for name, unit in state.items() if name.startswith(_UNIT)}
        rest = {name: value for name, value in state.items() if not name.startswith(_UNIT)}
        return dataclasses.replace(self, units=units), rest

    def lift(self, data: Data) -> tuple[Callable[[Data], Any], Data]:
        """Return the model as a function without arrays of its own, and its argument: these arrays and the data."""
        arrays, static = eqx.partition(self, eqx.is_array)

        def lifted(shared: Data) -> Any:
            return eqx.combine(shared["model"], static)(shared["data"])

        return lifted, {"model": arrays, "data": data}


def num_latent_numbers(sites: Mapping[str, Site]) -> int:
    """Return how many numbers the latent sites of a model have together."""
    return sum(math.prod(site.shape) for site in sites.values() if site.kind == "latent")


@eqx.filter_jit
def evaluate_draws(
    model: CalledWith, names: tuple[str, ...], latent: dict[str, jax.Array], data: Data
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Return values of latent and deterministic sites, and the log density, at latent values (chain, draw, ...)."""

    def one(draw: dict[str, jax.Array]) -> tuple[dict[str, jax.Array], jax.Array]:
        density, trace = log_density(handlers.seed(model, jax.random.key(0)), (data,), {}, draw)
        kept = [name for name in names if name in draw or trace[name]["type"] == "deterministic"]
        return {name: trace[name]["value"] for name in kept}, density

    return jax.lax.map(jax.tree_util.Partial(jax.lax.map, one), latent)


def _describe(name: str, site: Mapping[str, Any]) -> Site:
    value = site["value"]
    shape = tuple(jnp.shape(value)) if jax.tree_util.all_leaves([value]) else ()
    if site["type"] != "sample":
        return Site(name, site["type"], shape, ())
    batch = len(shape) - site["fn"].event_dim
    plates: list[str | None] = [None] * batch
    for frame in site["cond_indep_stack"]:
        plates[batch + frame.dim] = frame.name
    if site["is_observed"]:
        return Site(name, "observed", shape, tuple(plates))
    return Site(name, "latent", shape, tuple(plates), bool(site["fn"].support.is_discrete))
