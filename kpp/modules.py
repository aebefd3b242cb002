"""The base class of every abstract class that demands fields of its subclasses.

Two rules for such an abstract class:

* No ``from __future__ import annotations`` in its file. Equinox reads the annotation objects; it takes a string for an
  ordinary field, which then comes first in the constructor of every subclass.
* Where a final class declares further fields between the demanded ones, the demands stand in a plain class beside the
  module. Equinox looks there too, while type checkers, which take a demand in a module for an ordinary field, would
  otherwise assume another order of the constructor's parameters.
"""

from __future__ import annotations

import inspect
from typing import Any

import equinox as eqx

__all__ = ["AbstractModule"]

_KINDS = ("__abstractvars__", "__abstractclassvars__")  # where Equinox keeps the names that a class demands


class AbstractModule(eqx.Module):
    """An Equinox module whose final subclasses have every field that their abstract classes demand.

    An abstract class demands a field by annotating it with `equinox.AbstractVar` or `equinox.AbstractClassVar`, and its
    name starts with ``Abstract``. Every other class is final. Equinox checks an instance; this class checks each final
    class when it is created.

    Raises:
        TypeError: If a final class lacks a demanded field.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Check that a final class has the fields that its bases demand."""
        super().__init_subclass__(**options)
        if cls.__name__.lstrip("_").startswith("Abstract"):
            return
        above = cls.__mro__[1:]
        demanded = {name for base in above for kind in _KINDS for name in getattr(base, kind, ())}
        fields = {name for base in above for name in getattr(base, "__dataclass_fields__", ())}
        missing = demanded - fields - set(inspect.get_annotations(cls))
        if missing := {name for name in missing if not hasattr(cls, name)}:
            raise TypeError(f"`{cls.__name__}` lacks the fields {sorted(missing)}, which its abstract classes demand")
