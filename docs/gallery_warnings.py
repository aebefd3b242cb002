"""A warning in an example of the gallery is an error."""

import os
import warnings
from typing import Any


def make_errors(gallery_conf: dict[str, Any], fname: str | os.PathLike[str] | None) -> None:
    """Let warnings be errors in the example that runs next; called by sphinx-gallery in the process that runs it."""
    warnings.simplefilter("error")
