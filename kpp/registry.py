"""The registry: the kernels, embeddings, value functions, explainers and models of all plugins, by name.

All entries come from plugins, including kpp's own: the entry points of group "kpp" of all installed distributions are
read at the first look-up, in alphabetical order, and remembered. A plugin that cannot be used is left out with a
`PluginWarning`, and the others are loaded. A name that two plugins offer is not registered for either: looking it up
raises an error that names both. The environment variable `KPP_DISABLE_PLUGINS` (entry-point names with commas between)
switches plugins off.

Look-ups belong in ordinary Python, never inside traced code.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.metadata
import inspect
import os
import threading
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import pluggy

from kpp import hookspecs

__all__ = [
    "KINDS",
    "PluginError",
    "PluginRecord",
    "PluginWarning",
    "embeddings",
    "explainers",
    "get",
    "kernels",
    "models",
    "name_of",
    "owner_of",
    "plugins",
    "refresh",
    "value_functions",
]

#: The kinds of objects that can be registered; the hook of a kind is `register_<kind>`.
KINDS = ("kernels", "embeddings", "value_functions", "explainers", "models")

_DISABLE = "KPP_DISABLE_PLUGINS"
_OWN_DISTRIBUTION = "kpp"
_SLOW = 5.0  # seconds of loading a plugin that give a warning


class PluginError(ValueError):
    """A name that the registry does not know, or that two plugins offer."""


class PluginWarning(UserWarning):
    """A plugin, or a name that it offers, was left out of the registry, or a plugin takes long to load."""


@dataclass(frozen=True)
class PluginRecord:
    """The record of one installed plugin.

    Attributes:
        name: The name of its entry point.
        module: The module that the entry point names.
        distribution: The distribution that installed it.
        version: The version of that distribution.
        offers: For each kind, the names that were registered.
        refused: For each kind, the names that were not registered because another plugin offers them too.
        error: Why it was left out, or None.
        disabled: Whether `KPP_DISABLE_PLUGINS` switches it off.
    """

    name: str
    module: str
    distribution: str
    version: str
    offers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    refused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    error: str | None = None
    disabled: bool = False

    def __str__(self) -> str:
        return f"plugin {self.name!r} of distribution {self.distribution!r}"


@dataclass(frozen=True)
class _Plugin:
    """A record together with the classes that the plugin offers."""

    record: PluginRecord
    classes: Mapping[str, Mapping[str, type]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Registry:
    """The outcome of one discovery; `refused[kind][name]` lists the plugins that all offer the name."""

    records: tuple[PluginRecord, ...]
    classes: Mapping[str, Mapping[str, type]]
    refused: Mapping[str, Mapping[str, tuple[PluginRecord, ...]]]


_lock = threading.RLock()
_loaded: _Registry | None = None
_loading = False


def kernels() -> dict[str, type]:
    """Return the registered kernels by name."""
    return _all("kernels")


def embeddings() -> dict[str, type]:
    """Return the registered embeddings by name."""
    return _all("embeddings")


def value_functions() -> dict[str, type]:
    """Return the registered value functions by name."""
    return _all("value_functions")


def explainers() -> dict[str, type]:
    """Return the registered explainers by name."""
    return _all("explainers")


def models() -> dict[str, type]:
    """Return the registered models by name."""
    return _all("models")


def get(kind: str, name: str) -> type:
    """Look up a class.

    Args:
        kind: One of `KINDS`.
        name: The registered name.

    Returns:
        The class.

    Raises:
        PluginError: If no plugin offers the name (with the nearest names), or two do (with both distributions).
    """
    registry = _registry()
    classes = registry.classes[_check_kind(kind)]
    if name in classes:
        return classes[name]
    if name in registry.refused[kind]:
        raise PluginError(_collision(kind, name, registry.refused[kind][name]))
    raise PluginError(_unknown(kind, name, registry))


def name_of(kind: str, cls: type) -> str:
    """Return the name under which a class is registered.

    Args:
        kind: One of `KINDS`.
        cls: The class itself (not an instance).

    Returns:
        The name, the first in alphabetical order if it has several.

    Raises:
        PluginError: If the class is not registered.
    """
    for name, registered in sorted(_registry().classes[_check_kind(kind)].items()):
        if registered is cls:
            return name
    raise PluginError(
        f"{cls.__module__}.{cls.__qualname__} is not registered among the {_words(kind)}; a plugin that returns it "
        f"from `register_{kind}` makes it known by name"
    )


def owner_of(kind: str, cls: type) -> PluginRecord | None:
    """Return the plugin of another distribution that registers a class, or None for kpp's own and unknown classes.

    Args:
        kind: One of `KINDS`.
        cls: The class itself (not an instance).
    """
    registry = _registry()
    names = {name for name, registered in registry.classes[_check_kind(kind)].items() if registered is cls}
    for record in registry.records:
        if record.distribution != _OWN_DISTRIBUTION and names & set(record.offers.get(kind, ())):
            return record
    return None


def plugins() -> tuple[PluginRecord, ...]:
    """Return a record of every installed plugin, also of those that were left out, sorted by name."""
    return _registry().records


def refresh() -> None:
    """Forget what was loaded, so that the next look-up reads the installed plugins again."""
    global _loaded
    with _lock:
        _loaded = None


def _all(kind: str) -> dict[str, type]:
    return dict(_registry().classes[kind])


def _registry() -> _Registry:
    """Load the plugins at the first call."""
    global _loaded, _loading
    with _lock:
        if _loaded is None:
            if _loading:
                raise RuntimeError("a plugin may not look names up in the registry while it is being imported")
            _loading = True
            try:
                _loaded = _discover()
            finally:
                _loading = False
        return _loaded


def _discover() -> _Registry:
    found = sorted(
        importlib.metadata.entry_points(group=hookspecs.GROUP),
        key=lambda entry: (entry.name, _distribution_name(entry), entry.value),
    )
    owners = defaultdict(list)
    for entry in found:
        owners[entry.name].append(_distribution_name(entry))
    disabled = _disabled_names(set(owners))
    loaded = [_load(entry, owners[entry.name], entry.name in disabled) for entry in found]
    return _assemble(loaded)


def _disabled_names(installed: set[str]) -> set[str]:
    names = {name.strip() for name in os.environ.get(_DISABLE, "").split(",")} - {""}
    if unknown := sorted(names - installed):
        _warn(f"{_DISABLE} names {', '.join(unknown)}, which no installed plugin is called")
    return names


def _load(entry: importlib.metadata.EntryPoint, owners: list[str], disabled: bool) -> _Plugin:
    """Load one entry point; any exception is recorded as an error and gives a warning."""
    version = entry.dist.version if entry.dist is not None else "unknown"
    record = PluginRecord(entry.name, entry.value, _distribution_name(entry), version, disabled=disabled)
    if disabled:
        return _Plugin(record)
    try:
        _refuse_shared_name(entry, owners)
        start = time.perf_counter()
        offers = _offers(entry.load())
        if (took := time.perf_counter() - start) > _SLOW and record.distribution != _OWN_DISTRIBUTION:
            _warn(f"{record} took {took:.1f} s to load; {_DISABLE}={record.name} switches it off")
        return _Plugin(record, offers)
    except (Exception, SystemExit) as error:  # a plugin may raise any error, which must not stop kpp
        record = dataclasses.replace(record, error=f"{type(error).__name__}: {error}")
        _warn(f"{record} was left out: {record.error}")
        return _Plugin(record)


def _refuse_shared_name(entry: importlib.metadata.EntryPoint, owners: list[str]) -> None:
    """Check that only one distribution uses an entry-point name; kpp keeps its own name in any case."""
    own = _distribution_name(entry)
    if len(owners) == 1 or own == _OWN_DISTRIBUTION:
        return
    others = " and ".join(repr(owner) for owner in owners if owner != own)
    raise ValueError(f"the entry-point name {entry.name!r} of distribution {own!r} is also used by {others}")


def _offers(plugin: object) -> dict[str, dict[str, type]]:
    """Call the hooks of one plugin, with its own manager, so that its results are known to be its own."""
    manager = pluggy.PluginManager(hookspecs.GROUP)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(plugin)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        hooks = ", ".join(f"register_{kind}()" for kind in KINDS)
        raise TypeError(f"{error} (the hooks are {hooks})") from error
    offers: dict[str, dict[str, type]] = {}
    for kind in KINDS:
        for returned in getattr(manager.hook, f"register_{kind}")():
            offers[kind] = _checked(kind, returned)
    return offers


def _checked(kind: str, returned: object) -> dict[str, type]:
    """Check what a hook returned: a mapping from names to classes that can be instantiated."""
    if not isinstance(returned, Mapping):
        raise TypeError(f"`register_{kind}` must return a mapping from names to classes, got {returned!r}")
    for name, cls in returned.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"`register_{kind}` must use non-empty strings as names, got {name!r}")
        if not inspect.isclass(cls):
            raise TypeError(f"`register_{kind}` must map {name!r} to a class, got {cls!r}")
        if inspect.isabstract(cls):
            missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
            raise TypeError(f"`register_{kind}` maps {name!r} to {cls.__name__}, which lacks {missing}")
    return dict(returned)


def _assemble(loaded: list[_Plugin]) -> _Registry:
    """Register each name that exactly one plugin offers."""
    classes: dict[str, dict[str, type]] = {kind: {} for kind in KINDS}
    refused: dict[str, dict[str, tuple[PluginRecord, ...]]] = {kind: {} for kind in KINDS}
    for kind in KINDS:
        counts = Counter(name for plugin in loaded for name in plugin.classes.get(kind, ()))
        for plugin in loaded:
            for name, cls in plugin.classes.get(kind, {}).items():
                if counts[name] == 1:
                    classes[kind][name] = cls
                else:
                    refused[kind][name] = (*refused[kind].get(name, ()), plugin.record)
        for name, records in refused[kind].items():
            _warn(_collision(kind, name, records))
    records = tuple(_with_offers(plugin, classes) for plugin in loaded)
    return _Registry(records, {kind: dict(sorted(classes[kind].items())) for kind in KINDS}, refused)


def _with_offers(plugin: _Plugin, classes: Mapping[str, Mapping[str, type]]) -> PluginRecord:
    """Record which names of a plugin were accepted and which not."""
    offers, refused = {}, {}
    for kind, offered in plugin.classes.items():
        offers[kind] = tuple(sorted(name for name in offered if name in classes[kind]))
        refused[kind] = tuple(sorted(name for name in offered if name not in classes[kind]))
    return dataclasses.replace(plugin.record, offers=offers, refused=refused)


def _collision(kind: str, name: str, records: tuple[PluginRecord, ...]) -> str:
    offering = " and ".join(str(record) for record in records)
    return (
        f"the name {name!r} among the {_words(kind)} is refused because {offering} both offer it; uninstall one, or "
        f"switch it off with {_DISABLE}"
    )


def _unknown(kind: str, name: str, registry: _Registry) -> str:
    known = list(registry.classes[kind])
    near = difflib.get_close_matches(str(name), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(known) or 'none'}"
    message = f"no plugin offers {name!r} among the {_words(kind)}; {hint}"
    absent = [f"{record.name} (disabled)" for record in registry.records if record.disabled]
    absent += [f"{record.name} ({record.error})" for record in registry.records if record.error]
    return message + (f" Plugins left out: {', '.join(absent)}" if absent else "")


def _check_kind(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"`kind` must be one of {', '.join(KINDS)}, got {kind!r}")
    return kind


def _words(kind: str) -> str:
    return kind.replace("_", " ")


def _distribution_name(entry: importlib.metadata.EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "unknown"


def _warn(message: str) -> None:
    warnings.warn(message, PluginWarning, stacklevel=2)
