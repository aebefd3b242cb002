"""A NumPyro model run again under draws of its posterior, how these are read, and which sites a result depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.extend.core import Literal
from jaxtyping import Array, PyTree
from numpyro import handlers
from numpyro.primitives import Messenger

from kpp.inference.base import NumpyroModel, Site, inspect_sites
from kpp.storage import arviz_data

Trace = dict[str, dict[str, Any]]
# The sites without a name of their own here: random numbers that a model draws outside of its sites.
_UNNAMED = "random numbers drawn outside of sample sites"


class Replay(eqx.Module):
    """A model with its arguments, to be run under one draw after another."""

    numpyro_model: NumpyroModel
    data: dict[str, Any] = eqx.field(converter=lambda data: as_leaves(data))
    row_plates: tuple[str, ...] = eqx.field(static=True, default=())  # the plates that hold one member per row

    def trace(
        self, draw: Mapping[str, Array], data: Mapping[str, Any], num_rows: int | None, unknown: Unknown | None = None
    ) -> Trace:
        """Run the model with some arguments replaced, the row plates resized if a size is given; return the trace."""
        unknown = Unknown() if unknown is None else unknown
        known = handlers.substitute(self.numpyro_model, data=dict(draw))
        whole = _replayed(known, unknown, self.row_plates, num_rows)
        return handlers.trace(handlers.seed(whole, unknown.key)).get_trace(**{**self.data, **data})


class Unknown(eqx.Module):
    """Stand-ins for the values of sites that are not known, and the random key of everything else."""

    stand_ins: dict[str, Array] = eqx.field(default_factory=dict)  # a number for each site that may be unknown
    key: Array = eqx.field(default_factory=lambda: jax.random.key(0))

    def value(self, name: str, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return a value for a site."""
        return jnp.broadcast_to(self.stand_ins.get(name, jnp.ones(())), shape).astype(dtype)


class _replayed(Messenger):
    """A NumPyro effect handler: plates are whole, row plates have the rows asked for, and unknown sites stand-ins."""

    def __init__(self, fn: Any, unknown: Unknown, row_plates: tuple[str, ...], num_rows: int | None) -> None:
        self.unknown, self.row_plates, self.num_rows = unknown, row_plates, num_rows
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        """Change plates and the values of sites."""
        if msg["type"] == "plate":
            size = msg["args"][0]
            if self.num_rows is not None and msg["name"] in self.row_plates:
                size = self.num_rows
            msg["args"], msg["value"] = (size, size), jnp.arange(size)
        elif msg["type"] == "subsample":
            # A plate compares the rows with the size that it was made with; its members are all there, so nothing is
            # to be selected.
            msg["type"] = "whole"
        elif msg["type"] == "sample" and not (msg["is_observed"] and self.num_rows is None):
            shape = msg["fn"].shape(msg["kwargs"].get("sample_shape", ()))
            # Observations, and draws of sites with one value per training row, do not have the shape of other rows.
            if msg["value"] is None or jnp.shape(msg["value"]) != shape:
                dtype = int if msg["fn"].is_discrete else float
                msg["value"], msg["is_observed"] = self.unknown.value(msg["name"], shape, dtype), False
        elif msg["type"] == "param" and msg["value"] is None:
            start = jax.tree.map(jnp.asarray, msg["fn"](*msg["args"], **msg["kwargs"]))
            msg["value"] = jax.tree.map(lambda leaf: leaf * self.unknown.value(msg["name"], (), leaf.dtype), start)


def describe_sites(numpyro_model: NumpyroModel, data: Mapping[str, Any]) -> dict[str, Site]:
    """Return the sites of a model, parameters included, without computing any value."""
    arrays, others = eqx.partition(as_leaves(data), eqx.is_array)

    def run(**arguments: Any) -> None:
        numpyro_model(**eqx.combine(arguments, others))

    return inspect_sites(run, arrays, ("sample", "deterministic", "param"))


def as_leaves(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with arrays of JAX in place of others, so that compiled programs take them."""

    def convert(leaf: Any) -> Any:
        array = leaf.to_numpy() if hasattr(leaf, "to_numpy") else leaf
        return jnp.asarray(array) if isinstance(array, np.ndarray) else array

    return jax.tree.map(convert, dict(data))


def require_known(
    result: Callable[[Unknown], PyTree], sites: Mapping[str, Site], draws: Mapping[str, Array], what: str
) -> None:
    """Raise ValueError if a result depends on sites whose values are not known; nothing is computed.

    The message names the sites, and tells those without draws from those with a value per row.
    """
    names = [name for name, site in sites.items() if site.kind != "deterministic"]
    unknown = Unknown({name: jnp.ones(()) for name in names})
    dependent = _dependent_leaves(result, unknown)
    found = [name for name, is_dependent in dependent.stand_ins.items() if is_dependent]
    found += [_UNNAMED] if dependent.key else []
    if not found:
        return
    missing = [name for name in found if name not in draws]
    of_rows = [name for name in found if name in draws and draws[name].shape[2:] == sites[name].shape]
    others = [name for name in found if name not in (*missing, *of_rows)]
    reasons = [f"on {missing}, which `posterior` lacks (it has draws of {sorted(draws)})"] if missing else []
    if of_rows:
        reasons.append(f"on {of_rows}, which have one value per training row and are not known at other rows")
    for name in others:
        shape = draws[name].shape[2:]
        reasons.append(f"on {name!r}, whose draws have shape {shape} where the model has {sites[name].shape}")
    raise ValueError(f"{what} depends {'; and '.join(reasons)}")


def _dependent_leaves(f: Callable[[Unknown], PyTree], unknown: Unknown) -> Any:
    """Return for each leaf of the argument whether the result may depend on it, by following the traced program."""
    jaxpr = jax.make_jaxpr(f)(unknown).jaxpr
    reached: dict[Any, frozenset[int]] = {var: frozenset([i]) for i, var in enumerate(jaxpr.invars)}

    def of(variables: Any) -> frozenset[int]:
        known = [reached.get(var, frozenset()) for var in variables if not isinstance(var, Literal)]
        return frozenset().union(*known)

    for equation in jaxpr.eqns:
        reached.update(dict.fromkeys(equation.outvars, of(equation.invars)))
    positions = of(jaxpr.outvars)
    leaves, structure = jax.tree.flatten(unknown)
    return jax.tree.unflatten(structure, [i in positions for i in range(len(leaves))])


_SAMPLE_DIMS = ("chain", "draw")
_KINDS = (
    "a dict of draws by site, a NumPyro MCMC that has run, an ArviZ InferenceData, an xarray DataTree, or the Dataset "
    "of a group posterior"
)


def read_samples(posterior: object, sites: Mapping[str, Site]) -> dict[str, Array]:
    """Return the draws of some sites.

    Args:
        posterior: Draws by site, in a dict, a NumPyro MCMC, an ArviZ InferenceData or DataTree, or an xarray Dataset.
            Arrays of a dict lead with (draw,) or with (chain, draw); the model tells which.
        sites: The sites of the model whose draws are wanted.

    Returns:
        The draws of those sites that `posterior` holds, each (chain, draw, *shape).

    Raises:
        TypeError: If `posterior` is of another type.
        ValueError: If the draws lack the axes chain and draw, are not finite, or their numbers differ between sites.
    """
    dataset = _dataset(posterior)
    if dataset is not None:
        found = {name: _of_variable(dataset[name]) for name in sites if name in dataset}
    elif hasattr(posterior, "get_samples"):
        draws = posterior.get_samples(group_by_chain=True)
        found = {name: np.asarray(draws[name]) for name in sites if name in draws}
    elif isinstance(posterior, Mapping):
        found = {name: _of_array(np.asarray(posterior[name]), sites[name]) for name in sites if name in posterior}
    else:
        raise TypeError(f"`posterior` must be {_KINDS}, got {type(posterior).__name__}")
    _check(found)
    return {name: jnp.asarray(value) for name, value in found.items()}


def _dataset(posterior: Any) -> xr.Dataset | None:
    """Return the group posterior of an object of ArviZ or xarray, and None for other objects."""
    if isinstance(posterior, xr.Dataset):
        return posterior
    if hasattr(posterior, "groups"):
        return arviz_data.group(posterior, "posterior")
    return None


def _of_variable(variable: xr.DataArray) -> np.ndarray:
    missing = [dim for dim in _SAMPLE_DIMS if dim not in variable.dims]
    if missing:
        raise ValueError(
            f"`posterior` must have the dimensions chain and draw, got {variable.dims} for {variable.name!r}"
        )
    return variable.transpose(*_SAMPLE_DIMS, ...).to_numpy()


def _of_array(draws: np.ndarray, site: Site) -> np.ndarray:
    """Return draws of a dict with the axes of chains and draws; those of one chain may lack the first."""
    num_axes = draws.ndim - len(site.shape)
    if num_axes not in (1, 2):
        raise ValueError(
            f"`posterior` must hold draws of {site.name!r} of shape (draw, *{site.shape}) or (chain, draw, "
            f"*{site.shape}), got shape {draws.shape}"
        )
    return draws[None] if num_axes == 1 else draws


def _check(draws: Mapping[str, np.ndarray]) -> None:
    shapes = {name: value.shape[:2] for name, value in draws.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError(f"`posterior` must have as many chains and draws for all sites, got {shapes}")
    for name, value in draws.items():
        if 0 in value.shape[:2]:
            raise ValueError(f"`posterior` must hold at least one draw, got shape {value.shape} for {name!r}")
        if value.dtype.kind not in "fiub" or not np.isfinite(value).all():
            raise ValueError(f"`posterior` must hold finite numbers, got others for {name!r}")
