"""Collecting and running checks; the checks are defined in the other modules of this package.

A check is a plain function that takes one example, as the class's `examples` yields it, and raises an `AssertionError`
if a law does not hold. Its name is the name of the law, and the first line of its docstring states the law.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import click
import jax
from jax.typing import ArrayLike
from jaxtyping import PyTree

from kpp.conversion import AbstractConverter
from kpp.embeddings import AbstractEmbedding
from kpp.explanations import AbstractExplainer
from kpp.foundation.validation import count
from kpp.functionals import AbstractFunctional
from kpp.functions import RKHSFunction
from kpp.games import AbstractValueFunction
from kpp.inference import AbstractInference, AbstractModel
from kpp.kernels import AbstractKernel, AbstractProductKernel
from kpp.testing import (
    commands,
    converters,
    embeddings,
    explainers,
    functionals,
    inferences,
    kernels,
    models,
    value_functions,
)

Check = Callable[..., None]

_LAWS: dict[type, tuple[Check, ...]] = {
    AbstractKernel: kernels.LAWS,
    AbstractProductKernel: kernels.PRODUCT_LAWS,
    AbstractEmbedding: embeddings.LAWS,
    AbstractValueFunction: value_functions.LAWS,
    AbstractExplainer: explainers.LAWS,
    AbstractModel: models.LAWS,
    AbstractConverter: converters.LAWS,
    AbstractInference: inferences.LAWS,
    AbstractFunctional: functionals.LAWS,
}


@dataclass(frozen=True)
class Case:
    """One check on the examples of one class; calling it raises an `AssertionError` if the law does not hold.

    Attributes:
        name: The name of the class or command.
        cls: The class or command.
        check: The check.
        num_examples: How many examples of the class are checked; all of them if None.
        skip_examples: How many of the first examples are left out.
    """

    name: str
    cls: Any
    check: Check
    num_examples: int | None = None
    skip_examples: int = 0

    def __call__(self) -> None:
        """Run the check on the examples of the class."""
        stop = None if self.num_examples is None else self.skip_examples + self.num_examples
        for index, example in enumerate(_examples(self.cls)[self.skip_examples : stop], self.skip_examples):
            _run((self.check,), example, f"{self.name}, example {index}")

    def __str__(self) -> str:
        return f"{self.name}-{self.check.__name__}"


def cases(
    classes: Mapping[str, Any] | Iterable[Any], *, num_examples: int | None = None, skip_examples: int = 0
) -> list[Case]:
    """List the checks that apply to classes.

    Args:
        classes: Subclasses of kpp's abstract classes, or commands of click, as a mapping from names or as an iterable.
        num_examples: How many examples of each class are checked, at least 1; all of them if None.
        skip_examples: How many of the first examples of each class are left out, because another suite checks them.
            If it is not 0, all examples are built at once, to see which classes have further ones.

    Returns:
        One case per check of its kind and class that has examples to check.

    Raises:
        TypeError: If a class does not derive from one of kpp's abstract classes.
        ValueError: If `num_examples` is less than 1 or `skip_examples` is negative.
    """
    if num_examples is not None:
        count(num_examples, "num_examples", 1)
    count(skip_examples, "skip_examples", 0)
    if not isinstance(classes, Mapping):
        classes = {_name(cls): cls for cls in classes}
    return [
        Case(name, cls, check, num_examples, skip_examples)
        for name, cls in classes.items()
        for check in checks_of(cls)
        if not skip_examples or len(_examples(cls)) > skip_examples
    ]


def parametrize_with_checks(
    classes: Mapping[str, Any] | Iterable[Any], *, num_examples: int | None = None, skip_examples: int = 0
) -> Callable[[Any], Any]:
    """Parametrize a pytest test over all checks of the given classes.

    The test takes one argument, `check`, and calls it.

    Args:
        classes: Subclasses of kpp's abstract classes, or commands of click, as a mapping from names or as an iterable.
        num_examples: How many examples of each class are checked, at least 1; all of them if None. One example makes
            a quick test.
        skip_examples: How many of the first examples of each class are left out. A slower suite with
            ``skip_examples=1`` checks what the quick one leaves.

    Returns:
        A decorator, `pytest.mark.parametrize` over "check".

    Raises:
        TypeError: If a class does not derive from one of kpp's abstract classes.
        ValueError: If `num_examples` is less than 1 or `skip_examples` is negative.
    """
    import pytest

    return pytest.mark.parametrize(
        "check", cases(classes, num_examples=num_examples, skip_examples=skip_examples), ids=str
    )


def checks_of(cls: object) -> tuple[Check, ...]:
    """Return the checks of the laws that apply to a class, or to a command of click.

    Args:
        cls: A class that derives from one of the abstract classes of kpp, or one of these, or a command.

    Returns:
        Functions of one example, as the class's `examples` yields it.

    Raises:
        TypeError: If it is neither.
    """
    if isinstance(cls, click.Command):
        return commands.LAWS
    bases = [base for base in _LAWS if inspect.isclass(cls) and issubclass(cls, base)]
    if not bases:
        names = ", ".join(base.__name__ for base in _LAWS)
        raise TypeError(f"`classes` must derive from one of {names}, or be commands of click, got {cls!r}")
    return (_derives_from(bases[0]), *(law for base in bases for law in _LAWS[base]))


def _derives_from(base: type) -> Check:
    def derives_from_the_abstract_class(instance: object, *others: object) -> None:
        assert isinstance(instance, base), f"{type(instance).__name__} does not derive from {base.__name__}"

    derives_from_the_abstract_class.__doc__ = f"An example is an instance of {base.__name__}."
    return derives_from_the_abstract_class


def check_kernel(kernel: object, x: PyTree) -> None:
    """Check that a kernel satisfies the laws of kernels.

    Args:
        kernel: A concrete kernel.
        x: A batch of 3 to 8 points.
    """
    _check(AbstractKernel, (kernel, x))


def check_embedding(embedding: object, query: PyTree = None) -> None:
    """Check that an embedding satisfies the laws of embeddings.

    Args:
        embedding: An embedding.
        query: A batch of 2 to 5 queries, or None.
    """
    _check(AbstractEmbedding, (embedding, query))


def check_value_function(value_function: object, function: RKHSFunction, x: PyTree) -> None:
    """Check that a value function satisfies the laws of value functions.

    Args:
        value_function: A value function.
        function: An `RKHSFunction`.
        x: 2 to 4 points.
    """
    _check(AbstractValueFunction, (value_function, function, x))


def check_explainer(explainer: object, predictor: object, x: PyTree) -> None:
    """Check that an explainer satisfies the laws of explainers.

    Args:
        explainer: An explainer.
        predictor: A predictor of the kind that it requires.
        x: 2 to 4 points.
    """
    _check(AbstractExplainer, (explainer, predictor, x))


def check_model(model: object, x: PyTree, y: ArrayLike) -> None:
    """Check that a model satisfies the laws of models.

    Args:
        model: A model, with priors on some leaves.
        x: 8 to 20 points.
        y: Their targets.
    """
    _check(AbstractModel, (model, x, y))


def check_converter(
    converter: object, model: object, x: PyTree, mean: ArrayLike, covariance: ArrayLike | None = None
) -> None:
    """Check that a converter satisfies the laws of converters on one model.

    Args:
        converter: A converter.
        model: A fitted model of the library, or a pair of a model and its data.
        x: Points, (p, d).
        mean: The model's own predictions at x, (p,) or (p, outputs).
        covariance: Its own covariance of the function at x, (p, p); None if it is not a Gaussian process.
    """
    _check(AbstractConverter, (converter, model, x, mean, covariance))


def check_inference(inference: object, numpyro_model: Callable[..., Any], data: Mapping[str, Any]) -> None:
    """Check that an inference satisfies the laws of inferences.

    Args:
        inference: An inference with few steps.
        numpyro_model: A NumPyro model function with latent sites.
        data: Its arguments by name, the observations among them.
    """
    _check(AbstractInference, (inference, numpyro_model, dict(data)))


def check_functional(functional: object, function: RKHSFunction) -> None:
    """Check that a linear functional satisfies the laws of functionals.

    Args:
        functional: A functional of 1 to 20 numbers.
        function: An `RKHSFunction` without draws, of 3 to 8 points.
    """
    _check(AbstractFunctional, (functional, function))


def check_command(command: object) -> None:
    """Check that a command satisfies the laws of commands.

    Args:
        command: A command of click.
    """
    _run(commands.LAWS, (command,), repr(command))


def _name(cls: Any) -> str:
    """Return the name of a class or of a command."""
    return str(cls.name if isinstance(cls, click.Command) else cls.__name__)


@functools.cache
def _examples(cls: Any) -> tuple[tuple[Any, ...], ...]:
    """Return the examples of a class, which are built once for all checks; a command is its own example."""
    if isinstance(cls, click.Command):
        return ((cls,),)
    found = tuple(tuple(example) for example in cls.examples(jax.random.key(0)))
    if not found:
        raise AssertionError(f"{cls.__name__}.examples yields nothing to check")
    return found


def _check(base: type, example: tuple[Any, ...]) -> None:
    """Check one example of the user's; an object of a strange class has to satisfy the laws of the base, too."""
    found = type(example[0])
    where = repr(example[0]) if base is AbstractKernel else found.__name__
    _run(checks_of(found if issubclass(found, base) else base), example, where)


def _run(checks: Iterable[Check], example: tuple[Any, ...], where: str) -> None:
    """Run checks on one example and report all failures together."""
    failures = []
    for check in checks:
        try:
            check(*example)
        except Exception as error:
            failures.append((check, error))
    if failures:
        lines = [f"{where}: {len(failures)} conformance check(s) failed"]
        lines += [f"  {check.__name__}: {_law(check)}\n    {_reason(error)}" for check, error in failures]
        raise AssertionError("\n".join(lines)) from failures[0][1]


def _law(check: Check) -> str:
    return (inspect.getdoc(check) or "").partition("\n")[0]


def _reason(error: Exception) -> str:
    text = str(error).strip()
    return text if isinstance(error, AssertionError) and text else f"{type(error).__name__}: {text}"
