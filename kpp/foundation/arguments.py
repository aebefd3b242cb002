"""Checks of the kinds of arguments, made by their annotations where users call.

`guard_exports` stands at the end of the ``__init__`` of a package, or of a module that has none; packages that load
their names on first use have `kpp.foundation.exports`. From there on the functions that they hand out check each
argument before they run: a path is a path, a graph is a graph, a list of names is not one text. What depends on values,
such as a range or a number of rows, is checked by the functions themselves.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import jax
import numpy as np

from kpp.foundation.validation import check_rng_key, in_words, is_concrete, is_instance, wrong_kind

Function = TypeVar("Function", bound=Callable[..., Any])


class Kind(NamedTuple):
    """One of the kinds of values that an argument may have: its name in words, and a test."""

    words: str
    holds: Callable[[Any], bool]


def _is_listed(value: Any) -> bool:
    return hasattr(value, "__iter__") and not isinstance(value, (str, bytes)) and getattr(value, "ndim", 1) > 0


def _list_of(kind: str) -> Callable[[Any], bool]:
    # An iterator is read once, by the function.
    return lambda value: (
        _is_listed(value) and (not hasattr(value, "__len__") or all(is_instance(item, kind) for item in value))
    )


def _is_numeric(value: Any) -> bool:
    """Return whether NumPy reads a value as an array; which entries it may have is checked by the function."""
    if isinstance(value, (list, tuple)):
        try:
            array = np.asarray(value)
        except (ValueError, RecursionError):  # lists of different lengths, or very many in one another
            return False
        except jax.errors.TracerArrayConversionError:  # a list of traced numbers
            return True
        return array.dtype != object or not any(isinstance(item, (list, tuple)) for item in array.ravel().tolist())
    return hasattr(value, "__array__") or isinstance(value, (int, float, complex))


def _are_points(value: Any) -> bool:
    if isinstance(value, (list, jax.Array, np.ndarray)):
        return _is_numeric(value)
    leaves = jax.tree.leaves(value)
    return bool(leaves) and not np.isscalar(value) and all(map(_is_numeric, leaves))


def _is_key(value: Any) -> bool:
    if not isinstance(value, (jax.Array, np.ndarray)):
        return False
    try:
        check_rng_key(value)
    except TypeError:
        return False
    return True


_KEY = Kind("a JAX random key", _is_key)


def _is_table(value: Any) -> bool:
    # Objects of xarray are read as tables, too; see `kpp.data.tables.as_table`.
    return hasattr(value, "columns") or is_instance(value, "Dataset") or is_instance(value, "DataArray")


_NUMBERS = Kind("an array of numbers", _is_numeric)
_LIST = Kind("a list", _is_listed)
_LISTS = {"str": Kind("a list of names", _list_of("str")), "int": Kind("a list of integers", _list_of("int"))}
_DICTIONARY = Kind("a dictionary", lambda value: isinstance(value, Mapping))
_NAMED: dict[str, Kind] = {
    "None": Kind("None", lambda value: value is None),
    "bool": Kind("True or False", lambda value: is_instance(value, "bool")),
    "int": Kind("an integer", lambda value: is_instance(value, "int")),
    "float": Kind("a number", lambda value: is_instance(value, "float") and not np.isnan(value)),
    "str": Kind("text", lambda value: isinstance(value, str)),
    "Callable": Kind("a function", callable),
    "DataFrame": Kind("a data frame", _is_table),
    "type": Kind("a class", inspect.isclass),
    "slice": Kind("a slice", lambda value: isinstance(value, slice)),
    "Path": Kind("a path", lambda value: hasattr(value, "__fspath__")),
    "PathLike": Kind("a path", lambda value: isinstance(value, str) or hasattr(value, "__fspath__")),
    "RngKey": _KEY,
    "Points": Kind("points, one or more arrays that lead with the same axis", _are_points),
    "MixedGraph": Kind("a causal graph", lambda value: hasattr(value, "bidirected")),
    **dict.fromkeys(("AnyArray", "Array", "ArrayLike", "Numbers", "ndarray"), _NUMBERS),
    **dict.fromkeys(("Bool", "Float", "Int", "Num", "Real"), _NUMBERS),  # of jaxtyping
    **dict.fromkeys(("Coalitions", "Coefficients", "Instances", "Latents"), _NUMBERS),  # aliases of these
    **dict.fromkeys(("Mapping", "dict"), _DICTIONARY),
    **dict.fromkeys(("Collection", "Iterable", "Sequence", "list", "set", "tuple"), _LIST),
}
_ALIASES = {"Nodes": "str | Collection[str]"}
#: Classes that some modules import only for type checkers, in words.
_CLASSES = {
    "Axes": "axes of Matplotlib",
    "CausalDAG": "a CausalDAG",
    "DataArray": "an xarray.DataArray",
    "Dataset": "an xarray.Dataset",
    "Estimand": "an Estimand",
    "Explanation": "an Explanation",
    "Fit": "a Fit",
    "Independence": "an Independence",
}


def check_arguments(function: Function) -> Function:
    """Return a function that checks the kinds of its arguments before it runs.

    An argument is checked if its annotation is built from plain types, classes, arrays, paths, functions, sequences and
    mappings. Traced arrays are trusted. The function keeps its name, signature and documentation. For an argument of
    another kind it raises TypeError, or ValueError where plain types are needed; the message names the argument.
    """

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        names, kinds = _kinds_of(function)
        for name, value in zip(names, args, strict=False):
            if name in kinds:
                _check(value, name, kinds[name])
        for name, value in kwargs.items():
            if name in kinds:
                _check(value, name, kinds[name])
        return function(*args, **kwargs)

    checked.checks_arguments = True  # type: ignore[attr-defined]
    return checked  # type: ignore[return-value]


def _check(value: Any, name: str, kinds: tuple[Kind, ...]) -> None:
    for kind in kinds:
        if kind.holds(value):
            return
    if not is_concrete(value):
        return
    if _KEY in kinds:
        check_rng_key(value, name)  # raises, and says how a seed becomes a key
    raise wrong_kind(value, name, [kind.words for kind in kinds])


def guard_exports(namespace: dict[str, Any]) -> None:
    """Let what a package or module hands out check its arguments; `namespace` is its ``globals()``."""
    for name in handed_out(namespace):
        namespace[name] = guard(namespace[name], namespace["__name__"])


def handed_out(namespace: Mapping[str, Any]) -> list[str]:
    """Return the names that a package or module hands out.

    They are those of ``__all__``; without it, the public names of a package or of its toolkit, or the public classes
    and functions that a module defines.
    """
    if "__all__" in namespace:
        return list(namespace["__all__"])
    public = {name: value for name, value in namespace.items() if not name.startswith("_")}
    home = namespace["__name__"]
    if "__path__" in namespace or home.endswith(".toolkit"):
        return list(public)
    return [name for name, value in public.items() if callable(value) and getattr(value, "__module__", "") == home]


def guard(value: Any, package: str) -> Any:
    """Return a function that checks its arguments, or a class whose methods do; anything else as it is.

    A function is also replaced in the module that defines it, where pickle looks it up, and the classes that it returns
    are guarded. What comes from other packages than `package` is left as it is.
    """
    package = package.partition(".")[0]
    if inspect.isclass(value):
        for base in value.__mro__:
            if base.__module__.partition(".")[0] == package:
                _guard_methods(base)
    elif inspect.isfunction(value) and value.__module__.partition(".")[0] == package:
        kinds = [kind for name, kind in value.__annotations__.items() if name != "return"]
        # Functions of any object, such as `kpp.priors.is_prior`, are called for each leaf of a tree.
        if not hasattr(value, "checks_arguments") and not {*map(str, kinds)} <= {"object", "Any"}:
            value = check_arguments(value)
            setattr(sys.modules[value.__module__], value.__name__, value)
            _guard_returned(value, package)
    return value


def _guard_returned(function: Function, package: str) -> None:
    """Guard the classes that a function returns, which users get without naming them."""
    names = re.findall(r"\w+", str(function.__annotations__.get("return", "")))
    for returned in map(inspect.unwrap(function).__globals__.get, names):
        if inspect.isclass(returned) and returned.__module__.partition(".")[0] == package:
            guard(returned, package)


def _guard_methods(cls: type) -> None:
    """Let the public methods of a class check their arguments, and its constructor if it is written by hand.

    Fields of modules are checked by `kpp.foundation.modules`. Scikit-learn's estimators check their parameters in
    `fit`.
    """
    checked = {"__call__"} if hasattr(cls, "get_params") else {"__call__", "__init__"}
    for name, value in [*vars(cls).items()]:
        function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if not inspect.isfunction(function) or hasattr(function, "checks_arguments"):
            continue
        # The constructor of a dataclass is compiled from a string.
        if name in checked and inspect.unwrap(function).__code__.co_filename != "<string>" or not name.startswith("_"):
            checking = check_arguments(function)
            setattr(cls, name, checking if function is value else type(value)(checking))


@functools.cache
def _kinds_of(function: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, tuple[Kind, ...]]]:
    """Return the names of the arguments given by position, and the kinds of those that are checked."""
    parameters = inspect.signature(function).parameters.values()
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    kinds = {}
    for each in parameters:
        named = each.kind in (*by_position, inspect.Parameter.KEYWORD_ONLY)
        found = _parse(each.annotation, inspect.unwrap(function).__globals__) if named else None
        if each.name == "rng_key" and "None" not in str(each.annotation):  # where `RngKey` was replaced by Any
            found = (_KEY,)
        if found is not None:
            kinds[each.name] = found
    return tuple(each.name for each in parameters if each.kind in by_position), kinds


def _parse(annotation: Any, names: Mapping[str, Any]) -> tuple[Kind, ...] | None:
    """Return the kinds that an annotation names, or None if it allows anything else."""
    text = annotation.__name__ if isinstance(annotation, type) and not hasattr(annotation, "__args__") else annotation
    try:
        return _kinds_in(ast.parse(str(text), mode="eval").body, names)
    except SyntaxError:
        return None


def _kinds_in(node: ast.expr, names: Mapping[str, Any]) -> tuple[Kind, ...] | None:
    if isinstance(node, ast.BinOp):
        return _all_kinds((node.left, node.right), names)
    if isinstance(node, ast.Subscript):
        outer = _last_name(node.value)
        if outer == "Union" and isinstance(node.slice, ast.Tuple):
            return _all_kinds(node.slice.elts, names)
        if outer == "PyTree" and _first_part(node.slice) == "Any":  # what `kpp.typing.Points` is
            outer = "Points"
        if outer not in _NAMED:
            return None
        return (_LISTS.get(_first_part(node.slice), _LIST) if _NAMED[outer] is _LIST else _NAMED[outer],)
    name = "None" if isinstance(node, ast.Constant) and node.value is None else _last_name(node)
    if name in _NAMED:
        return (_NAMED[name],)
    if name in _ALIASES:
        return _parse(_ALIASES[name], names)
    found = _found(node, names)
    if get_origin(found) is Literal:
        choices = get_args(found)
        return (Kind(f"one of {choices}", lambda value: isinstance(value, str) and value in choices),)
    if getattr(get_origin(found), "__name__", "") in _NAMED:  # an alias, such as Mapping[str, Any]
        return _parse(found, names)
    return (_of_class(name),) if name in _CLASSES or _is_class(found) else None


def _all_kinds(nodes: Sequence[ast.expr], names: Mapping[str, Any]) -> tuple[Kind, ...] | None:
    found = [_kinds_in(node, names) for node in nodes]
    return None if None in found else tuple(kind for kinds in found for kind in kinds or ())


def _first_part(node: ast.expr) -> str:
    return _last_name(node.elts[0] if isinstance(node, ast.Tuple) else node)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _found(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return what a name stands for; annotations that are no text begin with the name of a package."""
    if isinstance(node, ast.Attribute):
        return getattr(_found(node.value, names), node.attr, None)
    name = _last_name(node)
    return names.get(name, sys.modules.get(name))


def _is_class(found: Any) -> bool:
    """Return whether a class is meant, and not an alias or a protocol."""
    if not inspect.isclass(found) or getattr(found, "_is_protocol", False):
        return False
    return found.__module__.partition(".")[0] not in ("builtins", "jaxtyping", "typing")


@functools.cache
def _of_class(name: str) -> Kind:
    # A class is known by its name, so that a check does not import the library that defines it.
    return Kind(_CLASSES.get(name) or in_words(name), lambda value: is_instance(value, name))
