"""The base class of all abstract classes that require fields of their subclasses.

Two rules for such an abstract class:

* No ``from __future__ import annotations`` in its file. Equinox reads the annotation objects. It treats an annotation
  that is a string as an ordinary field, which would then come first in the constructor of every subclass.
* If a final class declares further fields between the required ones, put the requirements into a plain class that is
  inherited in addition to the module. Equinox finds them there too. Type checkers treat a requirement in a module as an
  ordinary field and would otherwise assume a different order of the constructor's parameters.

Fields that are annotated with plain types or with abstract classes are checked in every instance.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from typing import Any

import equinox as eqx

from kpp.foundation.validation import check_type

_KINDS = ("__abstractvars__", "__abstractclassvars__")  # Equinox's lists of required fields


class AbstractModule(eqx.Module):
    """An Equinox module whose final subclasses have every field that their abstract classes require.

    An abstract class requires a field by annotating it with `equinox.AbstractVar` or `equinox.AbstractClassVar`, and
    its name starts with ``Abstract``. Every other class is final. Equinox checks an instance; this class checks each
    final class when it is created. A final class that lacks a required field is a TypeError.
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

    def __check_init__(self) -> None:
        """Check the fields whose annotations are plain types or abstract classes, such as ``int | None``.

        Equinox calls the checks of the subclasses first. Raises TypeError, or ValueError for a field of a plain type or
        NaN, if a field holds another type.
        """
        for name, types in _checked_fields(type(self)):
            check_type(getattr(self, name), name, types)


@functools.cache
def _checked_fields(cls: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the fields that are checked and the names of their types; an annotation may be a string or a type."""
    found = []
    for field in dataclasses.fields(cls):
        text = field.type.__name__ if isinstance(field.type, type) else str(field.type)
        types = tuple(part.strip().rpartition(".")[2] for part in text.split("|"))
        if all(re.fullmatch(r"bool|int|float|str|None|Bags|Abstract[A-Za-z]+", part) for part in types):
            found.append((field.name, types))
    return tuple(found)
