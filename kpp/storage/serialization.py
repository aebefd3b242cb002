"""Kernels, models and other registered objects as plain JSON values, and back.

A spec is the part of a study file or a saved fit that describes one object. It holds the registered name and the fields
by their names,

    {"name": "RBF", "lengthscale": {"prior": "LogNormal", "loc": 0.0, "scale": 1.0, "expand": [10]}, "variance": 1.0}

Arrays are (nested) lists of numbers, read in JAX's default precision; a prior is the name of a NumPyro distribution
(or of a `prior_class`) with its arguments, and with "expand" and "to_event" where the distribution is expanded or its
axes are events; an object inside an object is again a spec; fields with default values may be left out. A value that
cannot be written exactly is an error.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from kpp import registry
from kpp.runtime.handler_stack import separate_threads

_WRAPPERS = ("expand", "to_event")
# Matrices that a distribution computes from one of its other arguments.
_DERIVED = frozenset({"covariance_matrix", "precision_matrix"})

_Class = TypeVar("_Class", bound=type)
_DATA: dict[str, type] = {}  # data classes whose instances registered objects may hold, see `data_class`
_PRIORS: dict[str, Any] = {}  # distributions other than those of NumPyro, see `prior_class`
_TEXTS: dict[type, Callable[[Any], str]] = {}  # how instances are written, see `written_as_text`

separate_threads()


def data_class(cls: _Class) -> _Class:
    """Allow specs to hold instances of a data class that no plugin registers; its fields describe it; a decorator."""
    _DATA[cls.__name__] = cls
    return cls


def prior_class(cls: _Class) -> _Class:
    """Allow specs to hold instances of a distribution that is not one of NumPyro; a decorator.

    Its arguments are its attributes. Its module must be loaded when a spec is read: a plugin imports it in a hook.
    """
    _PRIORS[cls.__name__] = cls
    return cls


def prior_classes() -> dict[str, Any]:
    """Return the distributions that specs may hold, by their names."""
    # Of the functions, only those that build a distribution, such as `Bernoulli`; none of the base classes.
    built_in = {name: getattr(dist, name) for name in dist.__all__ if name[0].isupper()}
    return {name: cls for name, cls in (built_in | _PRIORS).items() if cls is not dist.Distribution}


def written_as_text(write: Callable[[Any], str]) -> Callable[[_Class], _Class]:
    """Allow specs to hold instances of a class as complete texts, which the fields that take them read; a decorator."""

    def remember(cls: _Class) -> _Class:
        _TEXTS[cls] = write
        return cls

    return remember


def to_spec(obj: object) -> dict[str, Any]:
    """Write a registered object as a JSON object.

    Args:
        obj: An instance of a registered kernel, model, value function, explainer or embedding.

    Returns:
        A dictionary of JSON values with the registered name under "name".

    Raises:
        TypeError: If the object, or one that it holds, is not registered or cannot be written exactly; the message
            names the field.
    """
    return _encode_object(obj, "")


def from_spec(spec: object, kind: str) -> Any:
    """Build the object that a spec describes.

    Args:
        spec: A mapping with the name under "name" and the fields by their names.
        kind: The kind of object, in which the name is looked up: one of `kpp.registry.KINDS`, such as "kernels".

    Raises:
        ValueError: If a name is not registered, a field is unknown or missing, or the class rejects a value.
        TypeError: If `spec` is not a mapping with a string "name".
    """
    return _decode_object(spec, kind, "")


def _encode_object(obj: Any, path: str) -> dict[str, Any]:
    kind, name = _registered(obj, path)
    spec: dict[str, Any] = {"name": name}
    if len(_kinds_offering(name)) > 1:
        spec["kind"] = kind
    for field in dataclasses.fields(obj):
        if field.init:
            spec[field.name] = _encode(getattr(obj, field.name), _join(path, field.name))
    return spec


def _registered(obj: object, path: str) -> tuple[str, str]:
    """Find the kind and name of an object's class."""
    if not dataclasses.is_dataclass(obj) or isinstance(obj, type):
        raise TypeError(f"{_at(path)}a spec needs an instance of a registered class, got {_describe(obj)}")
    if type(obj) in _DATA.values():
        return "data", type(obj).__name__
    for kind in registry.KINDS:
        try:
            return kind, registry.name_of(kind, type(obj))
        except registry.PluginError:
            continue
    cls = type(obj)
    raise TypeError(
        f"{_at(path)}{cls.__module__}.{cls.__qualname__} is not registered, so a spec has no name for it; "
        "a plugin makes it known (see the handbook of plugins)"
    )


def _encode(value: object, path: str) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, dist.Distribution):
        return _encode_prior(value, path)
    if isinstance(value, (jax.Array, np.ndarray, np.generic, int, float)):
        return _encode_numbers(value, path)
    if type(value) in _TEXTS:
        return _TEXTS[type(value)](value)
    if isinstance(value, eqx.Module) or type(value) in _DATA.values():
        return _encode_object(value, path)
    if isinstance(value, (tuple, list)):
        return [_encode(item, _join(path, index)) for index, item in enumerate(value)]
    raise TypeError(f"{_at(path)}a spec cannot hold {_describe(value)}")


def _encode_numbers(value: object, path: str) -> Any:
    if isinstance(value, jax.core.Tracer):
        raise TypeError(f"{_at(path)}a spec cannot be written inside traced code")
    if isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jnp.number) and value.dtype != jnp.bool_:
        raise TypeError(f"{_at(path)}a spec cannot hold an array of dtype {value.dtype}")
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{_at(path)}a spec cannot hold an array of dtype {array.dtype}")
    if array.size == 0:
        raise TypeError(f"{_at(path)}a spec cannot hold an array of shape {array.shape}")
    if not np.isfinite(array).all():
        raise TypeError(f"{_at(path)}a spec cannot hold NaN or infinite values, got {_describe(value)}")
    return array.tolist()


def _encode_prior(prior: dist.Distribution, path: str) -> dict[str, Any]:
    """Write a distribution, and read it back to check that nothing was lost."""
    spec = _prior_spec(prior, path)
    try:
        same = _same_distribution(_decode_prior(spec, path), prior)
    except (TypeError, ValueError):
        same = False
    if not same:
        raise TypeError(f"{_at(path)}a spec cannot hold the prior {_describe(prior)}")
    return spec


def _prior_spec(prior: dist.Distribution, path: str) -> dict[str, Any]:
    wrappers: dict[str, Any] = {}
    if type(prior) is dist.Independent:
        wrappers["to_event"] = prior.reinterpreted_batch_ndims
        prior = prior.base_dist
    if type(prior) is dist.ExpandedDistribution:
        wrappers["expand"] = list(prior.batch_shape)
        prior = prior.base_dist
    arguments = [name for name in inspect.signature(type(prior)).parameters if name != "validate_args"]
    if "scale_tril" in arguments:
        arguments = [name for name in arguments if name not in _DERIVED]
    missing = [name for name in arguments if not hasattr(prior, name)]
    if missing:
        raise TypeError(f"{_at(path)}a spec cannot hold the prior {_describe(prior)}, which keeps no {missing[0]!r}")
    spec: dict[str, Any] = {"prior": type(prior).__name__}
    for name in arguments:
        value = getattr(prior, name)
        encode = _prior_spec if isinstance(value, dist.Distribution) else _encode
        spec[name] = encode(value, _join(path, name))
    return spec | wrappers


def _same_distribution(first: dist.Distribution, second: dist.Distribution) -> bool:
    """Return whether two distributions have the same types, shapes and, up to broadcasting, numbers."""
    same_shape = type(first) is type(second) and (first.batch_shape, first.event_shape) == (
        second.batch_shape,
        second.event_shape,
    )
    leaves, others = jax.tree.leaves(first), jax.tree.leaves(second)
    if not same_shape or len(leaves) != len(others):
        return False
    return all(np.all(np.asarray(leaf) == np.asarray(other)) for leaf, other in zip(leaves, others, strict=True))


def _decode_object(spec: object, kind: str, path: str) -> Any:
    if not isinstance(spec, Mapping) or not isinstance(spec.get("name"), str):
        raise TypeError(f'{_at(path)}a spec must be a mapping with a string under "name", got {_describe(spec)}')
    kind = spec.get("kind", kind)
    try:
        cls = _DATA[spec["name"]] if kind == "data" and spec["name"] in _DATA else registry.get(kind, spec["name"])
    except registry.PluginError as error:
        raise registry.PluginError(f"{_at(path)}{error}") from error
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    values = {name: value for name, value in spec.items() if name not in ("name", "kind")}
    _check_names(cls, fields, values, path)
    decoded = {
        name: (_decode_static if fields[name].metadata.get("static") else _decode)(value, _join(path, name))
        for name, value in values.items()
    }
    try:
        return cls(**decoded)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{_at(path)}{spec['name']}: {error}") from error


def _check_names(cls: type, fields: Mapping[str, Any], values: Mapping[str, Any], path: str) -> None:
    """Check that the class has all given fields, and that all fields that it needs are given."""
    if unknown := [name for name in values if name not in fields]:
        raise ValueError(
            f"{_at(path)}{cls.__name__} has no field {unknown[0]!r}; its fields are {', '.join(fields) or 'none'}"
        )
    needed = [
        name for name, parameter in inspect.signature(cls).parameters.items() if parameter.default is parameter.empty
    ]
    if missing := [name for name in needed if name in fields and name not in values]:
        raise ValueError(f"{_at(path)}{cls.__name__} needs the field {missing[0]!r}")


def _decode(value: object, path: str) -> Any:
    if isinstance(value, Mapping):
        if "prior" in value:
            return _decode_prior(value, path)
        return _decode_object(value, _nested_kind(value, path), path)
    if isinstance(value, Sequence) and not isinstance(value, str):
        numbers = _as_numbers(value)
        if numbers is not None:
            return numbers
        return tuple(_decode(item, _join(path, index)) for index, item in enumerate(value))
    return value


def _decode_static(value: object, path: str) -> Any:
    """Read a static field: lists become tuples, numbers are unchanged."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_decode_static(item, path) for item in value)
    return _decode(value, path)


def _as_numbers(value: Sequence[Any]) -> jax.Array | None:
    """Read a list of numbers, nested to any depth, as an array; anything else gives None."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return None
    return jnp.asarray(array) if array.size and array.dtype.kind in "biuf" else None


def _nested_kind(spec: Mapping[str, Any], path: str) -> str:
    """Find the kind of an object inside another: where its name is registered."""
    kinds = _kinds_offering(spec.get("name"))
    field = next((part for part in reversed(path.split(".")) if not part.isdigit()), "")
    if kinds and "kernels" not in kinds and (field in ("kernel", "kernels") or field.endswith("_kernel")):
        raise ValueError(f"{_at(path)}needs a kernel, got {spec['name']!r}, which is registered among {kinds[0]}")
    if len(kinds) > 1 and "kind" not in spec:
        raise ValueError(f'{_at(path)}{spec["name"]!r} is registered among {" and ".join(kinds)}; say "kind" too')
    return kinds[0] if kinds else "kernels"


def _kinds_offering(name: object) -> list[str]:
    kinds = [kind for kind in registry.KINDS if name in getattr(registry, kind)()]
    return [*kinds, "data"] if name in _DATA else kinds


def _decode_prior(spec: Mapping[str, Any], path: str) -> dist.Distribution:
    name = spec["prior"]
    known = prior_classes()
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"{_at(path)}numpyro.distributions has no distribution {name!r}")
    arguments = {
        key: _decode(value, _join(path, key)) for key, value in spec.items() if key != "prior" and key not in _WRAPPERS
    }
    try:
        prior = known[name](**arguments)
        if "expand" in spec:
            prior = prior.expand(tuple(map(operator.index, spec["expand"])))
        if "to_event" in spec:
            prior = prior.to_event(operator.index(spec["to_event"]))
    except (NotImplementedError, TypeError, ValueError) as error:
        raise ValueError(f"{_at(path)}the prior {name} cannot be built: {error}") from error
    if not isinstance(prior, dist.Distribution):
        raise ValueError(f"{_at(path)}numpyro.distributions has no distribution {name!r}")
    return prior


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _at(path: str) -> str:
    return f"`{path}`: " if path else ""


def _describe(value: object) -> str:
    if isinstance(value, dist.Distribution):
        return f"{type(value).__name__} of batch shape {value.batch_shape} and event shape {value.event_shape}"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:77] + '...'}"
