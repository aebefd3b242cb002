"""A persistent cache of compiled programs, so that the second run of a script does not compile again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from kpp.foundation.arguments import guard_exports
from kpp.runtime.files import expand_user


def default_cache_directory() -> Path:
    """Return the folder `kpp/jax` below the user's cache folder, which `XDG_CACHE_HOME` overrides on every system."""
    if "XDG_CACHE_HOME" in os.environ:
        base = Path(os.environ["XDG_CACHE_HOME"])
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    else:
        base = Path.home() / ".cache"
    return base / "kpp" / "jax"


def enable_compile_cache(directory: str | os.PathLike[str] | None = None) -> Path:
    """Keep every program that JAX compiles from now on in a folder, and look there before compiling.

    The setting belongs to JAX and is global, so importing kpp never changes it. JAX's thresholds are set to zero,
    because they would exclude programs that compile in less than a second, and a kernel method consists of many small
    programs.

    Args:
        directory: The folder, created if it does not exist; by default `default_cache_directory()`.

    Returns:
        The absolute path of the folder.

    Raises:
        ValueError: If `directory` is a file, or cannot be created.
    """
    path = Path(directory) if directory is not None else default_cache_directory()
    path = expand_user(path).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"`directory` must be a folder that exists or can be made; got {path} ({error})") from error
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    compilation_cache.reset_cache()  # JAX decides once per process whether there is a cache, at the first compilation
    return path


guard_exports(globals())
