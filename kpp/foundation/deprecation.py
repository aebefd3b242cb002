"""Names, arguments and values that still work and will go."""

from __future__ import annotations

import warnings


def warn_deprecated(old: str, *, instead: str, removed_in: str) -> None:
    """Warn the caller of the function that calls this: what it uses will go.

    Args:
        old: What is used, as the user writes it, such as ``"`GPRegression(noise=)`"``.
        instead: What to write in its place.
        removed_in: The version of kpp without it. A test fails once kpp has this version and still has the call.
    """
    warnings.warn(f"{old} is deprecated and goes in kpp {removed_in}: use {instead}", FutureWarning, stacklevel=3)
