"""The hooks that a plugin of kpp may implement, one per kind, each returning classes or commands by name.

A plugin is a module that a distribution names as an entry point of the group "kpp". It marks the hooks that it
implements with `kpp.hookimpl`::

    import kpp

    @kpp.hookimpl
    def register_kernels():
        return {"MyKernel": MyKernel}

The names are what users write in `kpp.explain(..., explainer="name")` and in study files.
"""

from __future__ import annotations

from collections.abc import Mapping

import click
import pluggy

#: The name of the project for pluggy, and the group of entry points.
GROUP = "kpp"

hookspec = pluggy.HookspecMarker(GROUP)

#: Marks a function of a plugin as the implementation of the hook of that name.
hookimpl = pluggy.HookimplMarker(GROUP)


@hookspec
def register_kernels() -> Mapping[str, type]:  # type: ignore[empty-body]
    """Register kernels: final subclasses of `kpp.kernels.AbstractKernel`."""


@hookspec
def register_embeddings() -> Mapping[str, type]:  # type: ignore[empty-body]
    """Register embeddings: final subclasses of `kpp.embeddings.AbstractEmbedding`."""


@hookspec
def register_value_functions() -> Mapping[str, type]:  # type: ignore[empty-body]
    """Register value functions: final subclasses of `kpp.games.AbstractValueFunction`."""


@hookspec
def register_explainers() -> Mapping[str, type]:  # type: ignore[empty-body]
    """Register explainers: final subclasses of `kpp.explanations.AbstractExplainer`."""


@hookspec
def register_models() -> Mapping[str, type]:  # type: ignore[empty-body]
    """Register models: final subclasses of `kpp.inference.AbstractModel`."""


@hookspec
def register_converters() -> Mapping[str, type]:  # type: ignore[empty-body]
    """Register converters: subclasses of `kpp.AbstractConverter`, named after the top-level module of their library."""


@hookspec
def register_inferences() -> Mapping[str, type]:  # type: ignore[empty-body]
    """Register inferences: final subclasses of `kpp.inference.AbstractInference`."""


@hookspec
def register_commands() -> Mapping[str, click.Command]:  # type: ignore[empty-body]
    """Register commands of the command line: `kpp NAME` runs them. Their modules import JAX only when they run."""
