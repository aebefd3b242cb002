"""The registry: the kernels, embeddings, value functions, explainers, models, commands, ... of all plugins, by name.

All entries come from plugins, including kpp's own. The entry points of group "kpp" of all installed distributions are
imported at the first look-up, in alphabetical order; a hook is called at the first look-up of its kind. A plugin that
cannot be used is left out with a `PluginWarning`, and the others are loaded. kpp keeps its own names: a plugin
that offers one of them gets a warning. A name that two other plugins offer is not registered for either: looking it up
raises an error that names both. The environment variable `KPP_DISABLE_PLUGINS`
(entry-point names with commas between) switches plugins off.

Look-ups belong in ordinary Python, never inside traced code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib.metadata
import inspect
import os
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import click
import pluggy

from kpp.foundation import hookspecs
from kpp.foundation.caution import KppWarning
from kpp.foundation.distribution import DISTRIBUTION
from kpp.runtime.signals import end_if_asked, raised_by_signal

#: The kinds of classes that can be registered; the hook of a kind is `register_<kind>`.
KINDS = ("kernels", "embeddings", "value_functions", "explainers", "models", "inferences", "converters")
#: These, and the commands of the command line, which are objects.
ALL_KINDS = (*KINDS, "commands")

#: The commands of `kpp.__main__` itself, whose names no plugin can have.
OWN_COMMANDS = ("check", "plugins")

_DISABLE = "KPP_DISABLE_PLUGINS"
_SLOW = 5.0  # seconds of loading a plugin that give a warning


class PluginError(ValueError):
    """A name that the registry does not know, or that two plugins offer."""


class PluginWarning(KppWarning):
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


@dataclass
class _Plugin:
    """A record, the hooks if the plugin could be imported and is not switched off, and what they returned by kind."""

    record: PluginRecord
    hooks: pluggy.PluginManager | None = None
    offers: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Kind:
    """What plugins register of one kind; `refused[name]` lists the plugins that offer the name and did not get it."""

    accepted: Mapping[str, Any]
    refused: Mapping[str, tuple[PluginRecord, ...]]


@dataclass
class _Registry:
    """The plugins of one discovery, the kinds that were looked up, and the records, known once all kinds are loaded."""

    plugins: list[_Plugin]
    kinds: dict[str, _Kind] = field(default_factory=dict)
    records: tuple[PluginRecord, ...] = ()


_lock = threading.RLock()
_found: _Registry | None = None
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


def converters() -> dict[str, type]:
    """Return the registered converters by the name of the top-level module of their library."""
    return _all("converters")


def inferences() -> dict[str, type]:
    """Return the registered inferences by name."""
    return _all("inferences")


def commands() -> dict[str, click.Command]:
    """Return the commands of plugins by name: `kpp NAME` runs them."""
    return _all("commands")


def get(kind: str, name: str) -> type:
    """Look up a class.

    Args:
        kind: One of `KINDS`.
        name: The registered name.

    Raises:
        PluginError: If no plugin offers the name (with the nearest names), or two do (with both distributions).
    """
    check_name(_check_kind(kind), name)
    found: type = _kind(kind).accepted[name]
    return found


def check_name(kind: str, name: str) -> None:
    """Raise PluginError unless exactly one plugin offers a name of a kind, one of `ALL_KINDS`."""
    registered = _kind(_check_kind(kind, ALL_KINDS))
    if name in registered.accepted:
        return
    if name in registered.refused:
        raise PluginError(_refusal(kind, name, registered.refused[name]))
    raise PluginError(_unknown(kind, name, registered.accepted))


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
    for name, registered in sorted(_kind(_check_kind(kind)).accepted.items()):
        if registered is cls:
            return name
    raise PluginError(
        f"{cls.__module__}.{cls.__qualname__} is not registered among the {_words(kind)}; a plugin that returns it "
        f"from `register_{kind}` makes it known by name"
    )


def owner_of(kind: str, cls: type) -> PluginRecord | None:
    """Return the plugin of another distribution that registers a class, or None for kpp's own and unknown classes."""
    names = {name for name, registered in _kind(_check_kind(kind)).accepted.items() if registered is cls}
    for record in plugins():
        if record.distribution != DISTRIBUTION and names & set(record.offers.get(kind, ())):
            return record
    return None


def plugins() -> tuple[PluginRecord, ...]:
    """Return a record of every installed plugin, also of those that were left out, sorted by name."""
    with _lock:
        kinds = {kind: _kind(kind) for kind in ALL_KINDS}
        registry = _discovered()
        if not registry.records:
            registry.records = tuple(_with_offers(plugin, kinds) for plugin in registry.plugins)
        return registry.records


def refresh() -> None:
    """Forget what was loaded, so that the next look-up reads the installed plugins again."""
    global _found
    with _lock:
        _found = None


def _all(kind: str) -> dict[str, Any]:
    return dict(_kind(kind).accepted)


def _kind(kind: str) -> _Kind:
    """Return what is registered of a kind; call the hooks of the kind at the first look-up."""
    with _lock:
        kinds = _discovered().kinds
        if kind not in kinds:
            with _not_within_a_plugin():
                kinds[kind] = _assemble(kind, _discovered().plugins)
        return kinds[kind]


def _discovered() -> _Registry:
    """Import the plugins at the first call."""
    global _found
    with _lock:
        if _found is None:
            with _not_within_a_plugin():
                _found = _Registry(_discover())
        return _found


@contextlib.contextmanager
def _not_within_a_plugin() -> Iterator[None]:
    """Refuse to load plugins while one is loaded."""
    global _loading
    if _loading:
        raise RuntimeError("a plugin may not look names up in the registry while it is being imported")
    _loading = True
    try:
        yield
    finally:
        _loading = False


def _discover() -> list[_Plugin]:
    found = sorted(
        importlib.metadata.entry_points(group=hookspecs.GROUP),
        key=lambda entry: (entry.name, _distribution_name(entry), entry.value),
    )
    owners = defaultdict(list)
    for entry in found:
        owners[entry.name].append(_distribution_name(entry))
    disabled = _disabled_names(set(owners))
    return [_load(entry, owners[entry.name], entry.name in disabled) for entry in found]


def _disabled_names(installed: set[str]) -> set[str]:
    names = {name.strip() for name in os.environ.get(_DISABLE, "").split(",")} - {""}
    if unknown := sorted(names - installed):
        _warn(f"{_DISABLE} names {', '.join(unknown)}, which no installed plugin is called")
    return names


def _load(entry: importlib.metadata.EntryPoint, owners: list[str], disabled: bool) -> _Plugin:
    """Import the module of one entry point."""
    version = entry.dist.version if entry.dist is not None else "unknown"
    plugin = _Plugin(PluginRecord(entry.name, entry.value, _distribution_name(entry), version, disabled=disabled))
    if not disabled:
        with _left_out_if_it_fails(plugin):
            own = plugin.record.distribution
            if len(owners) > 1 and own != DISTRIBUTION:  # kpp keeps its own name in any case
                others = " and ".join(repr(owner) for owner in owners if owner != own)
                raise ValueError(
                    f"the entry-point name {entry.name!r} of distribution {own!r} is also used by {others}"
                )
            plugin.hooks = _hooks(entry.load())
    return plugin


@contextlib.contextmanager
def _left_out_if_it_fails(plugin: _Plugin) -> Iterator[None]:
    """Record any exception of a plugin as its error, with a warning; warn also if it is slow."""
    start = time.perf_counter()
    try:
        yield
    except BaseException as error:  # a plugin may raise any error, which must not stop kpp
        if isinstance(error, KeyboardInterrupt) or raised_by_signal(error):  # it interrupted the plugin
            raise
        plugin.record = dataclasses.replace(plugin.record, error=f"{type(error).__name__}: {error}")
        plugin.hooks = None
        _warn(f"{plugin.record} was left out: {plugin.record.error}")
    end_if_asked()
    took = time.perf_counter() - start
    if took > _SLOW and plugin.record.distribution != DISTRIBUTION:
        _warn(f"{plugin.record} took {took:.1f} s to load; {_DISABLE}={plugin.record.name} switches it off")


def _hooks(plugin: object) -> pluggy.PluginManager:
    """Return the hooks of one plugin, in its own manager, so that their results are known to be its own."""
    manager = pluggy.PluginManager(hookspecs.GROUP)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(plugin)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        hooks = ", ".join(f"register_{kind}()" for kind in ALL_KINDS)
        raise TypeError(f"{error} (the hooks are {hooks})") from error
    return manager


def _checked(kind: str, returned: object) -> dict[str, Any]:
    """Check what a hook returned: a mapping from names to classes that can be instantiated, or to commands."""
    if not isinstance(returned, Mapping):
        raise TypeError(f"`register_{kind}` must return a mapping from names to {_words(kind)}, got {returned!r}")
    for name, value in returned.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"`register_{kind}` must use non-empty strings as names, got {name!r}")
        if kind == "commands":
            if not isinstance(value, click.Command):
                raise TypeError(f"`register_commands` must map {name!r} to a command of click, got {value!r}")
            if name in OWN_COMMANDS:
                raise ValueError(f"`register_commands` must not use {name!r}, which is a command of kpp itself")
        elif not inspect.isclass(value):
            raise TypeError(f"`register_{kind}` must map {name!r} to a class, got {value!r}")
        elif inspect.isabstract(value):
            missing = ", ".join(sorted(getattr(value, "__abstractmethods__", ())))
            raise TypeError(f"`register_{kind}` maps {name!r} to {value.__name__}, which lacks {missing}")
    return dict(returned)


def _assemble(kind: str, plugins: list[_Plugin]) -> _Kind:
    """Register each name of a kind that exactly one plugin offers, and all of kpp's own."""
    offers = defaultdict(list)
    for plugin in plugins:
        if plugin.hooks is not None:
            with _left_out_if_it_fails(plugin):  # a plugin whose hook fails offers nothing from then on
                for returned in getattr(plugin.hooks.hook, f"register_{kind}")():
                    plugin.offers[kind] = _checked(kind, returned)
        for name, cls in plugin.offers.get(kind, {}).items():
            offers[name].append((plugin.record, cls))
    accepted: dict[str, Any] = {}
    refused: dict[str, tuple[PluginRecord, ...]] = {}
    for name, found in sorted(offers.items()):
        own = [offer for offer in found if offer[0].distribution == DISTRIBUTION]
        kept = own or found
        if len(kept) == 1:
            accepted[name] = kept[0][1]
        others = tuple(record for record, _ in found if len(kept) > 1 or record is not kept[0][0])
        if others:
            refused[name] = others
            _warn(_refusal(kind, name, others, is_own=name in accepted))
    return _Kind(accepted, refused)


def _with_offers(plugin: _Plugin, kinds: Mapping[str, _Kind]) -> PluginRecord:
    """Record which names of a plugin were accepted and which not."""
    offers, refused = {}, {}
    place = plugin.record.name, plugin.record.distribution
    for kind, offered in plugin.offers.items():
        taken = {
            name
            for name in offered
            if place in [(record.name, record.distribution) for record in kinds[kind].refused.get(name, ())]
        }
        offers[kind], refused[kind] = tuple(sorted(set(offered) - taken)), tuple(sorted(taken))
    return dataclasses.replace(plugin.record, offers=offers, refused=refused)


def _refusal(kind: str, name: str, records: tuple[PluginRecord, ...], *, is_own: bool = False) -> str:
    offering = " and ".join(str(record) for record in records)
    reason = f"refused because {offering} both offer it; uninstall one, or switch it off with {_DISABLE}"
    if is_own:
        kept = "one of kpp's own, and kpp keeps it"
        reason = f"{kept}; the one that {offering} offers is left out and needs another name"
    return f"the name {name!r} among the {_words(kind)} is {reason}"


def _unknown(kind: str, name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(str(name), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(known) or 'none'}"
    message = f"no plugin offers {name!r} among the {_words(kind)}; {hint}"
    records = [plugin.record for plugin in _discovered().plugins]
    absent = [f"{record.name} (disabled)" for record in records if record.disabled]
    absent += [f"{record.name} ({record.error})" for record in records if record.error]
    return message + (f" Plugins left out: {', '.join(absent)}" if absent else "")


def _check_kind(kind: str, known: tuple[str, ...] = KINDS) -> str:
    if kind not in known:
        raise ValueError(f"`kind` must be one of {', '.join(known)}, got {kind!r}")
    return kind


def _words(kind: str) -> str:
    return kind.replace("_", " ")


def _distribution_name(entry: importlib.metadata.EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "unknown"


def _warn(message: str) -> None:
    warnings.warn(message, PluginWarning, stacklevel=2)
