"""The base class of all abstract classes that require fields of their subclasses.

Two rules for such an abstract class:

* No ``from __future__ import annotations`` in its file. Equinox reads the annotation objects. It treats an annotation
  that is a string as an ordinary field, which would then come first in the constructor of every subclass.
* If a final class declares further fields between the required ones, put the requirements into a plain class that is
  inherited in addition to the module. Equinox finds them there too. Type checkers treat a requirement in a module as an
  ordinary field and would otherwise assume a different order of the constructor's parameters.
"""

from __future__ import annotations

import inspect
from typing import Any

import equinox as eqx

__all__ = ["AbstractModule"]

_KINDS = ("__abstractvars__", "__abstractclassvars__")  # Equinox's lists of required fields


class AbstractModule(eqx.Module):
    """An Equinox module whose final subclasses have every field that their abstract classes require.

    An abstract class requires a field by annotating it with `equinox.AbstractVar` or `equinox.AbstractClassVar`, and
    its name starts with ``Abstract``. Every other class is final. Equinox checks an instance; this class checks each
    final class when it is created.

    Raises:
        TypeError: If a final class lacks a required field.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Check that a final class has the fields that its bases require."""
        super().__init_subclass__(**options)
        if cls.__name__.lstrip("_").startswith("Abstract"):
            return
        above = cls.__mro__[1:]
        demanded = {name for base in above for kind in _KINDS for name in getattr(base, kind, ())}
        fields = {name for base in above for name in getattr(base, "__dataclass_fields__", ())}
        missing = demanded - fields - set(inspect.get_annotations(cls))
        if missing := {name for name in missing if not hasattr(cls, name)}:
            raise TypeError(f"`{cls.__name__}` lacks the fields {sorted(missing)}, which its abstract classes demand")
