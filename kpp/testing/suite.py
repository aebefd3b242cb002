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
from kpp.functions import RKHSFunction
from kpp.games import AbstractValueFunction
from kpp.inference import AbstractInference, AbstractModel
from kpp.kernels import AbstractKernel
from kpp.testing.commands import command_checks
from kpp.testing.converters import converter_checks
from kpp.testing.embeddings import embedding_checks
from kpp.testing.explainers import explainer_checks
from kpp.testing.inferences import inference_checks
from kpp.testing.kernels import kernel_checks
from kpp.testing.models import model_checks
from kpp.testing.value_functions import value_function_checks

Check = Callable[..., None]

_SUITES: dict[type, Callable[[type], tuple[Check, ...]]] = {
    AbstractKernel: kernel_checks,
    AbstractEmbedding: embedding_checks,
    AbstractValueFunction: value_function_checks,
    AbstractExplainer: explainer_checks,
    AbstractModel: model_checks,
    AbstractConverter: converter_checks,
    AbstractInference: inference_checks,
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
        for check in _checks_of(cls)
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


def check_kernel(kernel: object, x: PyTree) -> None:
    """Check that a kernel satisfies the laws of kernels.

    Args:
        kernel: A concrete kernel.
        x: A batch of 3 to 8 points.

    Raises:
        AssertionError: If laws do not hold; the message names all of them.
    """
    _run(kernel_checks(type(kernel)), (kernel, x), repr(kernel))


def check_embedding(embedding: object, query: PyTree = None) -> None:
    """Check that an embedding satisfies the laws of embeddings.

    Args:
        embedding: An embedding.
        query: A batch of 2 to 5 queries, or None.

    Raises:
        AssertionError: If laws do not hold; the message names all of them.
    """
    _run(embedding_checks(type(embedding)), (embedding, query), type(embedding).__name__)


def check_value_function(value_function: object, function: RKHSFunction, x: PyTree) -> None:
    """Check that a value function satisfies the laws of value functions.

    Args:
        value_function: A value function.
        function: An `RKHSFunction`.
        x: 2 to 4 points.

    Raises:
        AssertionError: If laws do not hold; the message names all of them.
    """
    _run(value_function_checks(type(value_function)), (value_function, function, x), type(value_function).__name__)


def check_explainer(explainer: object, predictor: object, x: PyTree) -> None:
    """Check that an explainer satisfies the laws of explainers.

    Args:
        explainer: An explainer.
        predictor: A predictor of the kind that it requires.
        x: 2 to 4 points.

    Raises:
        AssertionError: If laws do not hold; the message names all of them.
    """
    _run(explainer_checks(type(explainer)), (explainer, predictor, x), type(explainer).__name__)


def check_model(model: object, x: PyTree, y: ArrayLike) -> None:
    """Check that a model satisfies the laws of models.

    Args:
        model: A model, with priors on some leaves.
        x: 8 to 20 points.
        y: Their targets.

    Raises:
        AssertionError: If laws do not hold; the message names all of them.
    """
    _run(model_checks(type(model)), (model, x, y), type(model).__name__)


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

    Raises:
        AssertionError: If laws do not hold; the message names all of them.
    """
    example = (converter, model, x, mean, covariance)
    _run(converter_checks(type(converter)), example, type(converter).__name__)


def check_inference(inference: object, numpyro_model: Callable[..., Any], data: Mapping[str, Any]) -> None:
    """Check that an inference satisfies the laws of inferences.

    Args:
        inference: An inference with few steps.
        numpyro_model: A NumPyro model function with latent sites.
        data: Its arguments by name, the observations among them.

    Raises:
        AssertionError: If laws do not hold; the message names all of them.
    """
    _run(inference_checks(type(inference)), (inference, numpyro_model, dict(data)), type(inference).__name__)


def check_command(command: object) -> None:
    """Check that a command satisfies the laws of commands.

    Args:
        command: A command of click.

    Raises:
        AssertionError: If laws do not hold; the message names all of them.
    """
    _run(command_checks(command), (command,), repr(command))


def _name(cls: Any) -> str:
    """Return the name of a class or of a command."""
    return str(cls.name if isinstance(cls, click.Command) else cls.__name__)


def _checks_of(cls: Any) -> tuple[Check, ...]:
    if isinstance(cls, click.Command):
        return command_checks(cls)
    for base, checks in _SUITES.items():
        if inspect.isclass(cls) and issubclass(cls, base):
            return checks(cls)
    bases = ", ".join(base.__name__ for base in _SUITES)
    raise TypeError(f"`classes` must derive from one of {bases}, or be commands of click, got {cls!r}")


@functools.cache
def _examples(cls: Any) -> tuple[tuple[Any, ...], ...]:
    """Return the examples of a class, which are built once for all checks; a command is its own example."""
    if isinstance(cls, click.Command):
        return ((cls,),)
    found = tuple(tuple(example) for example in cls.examples(jax.random.key(0)))
    if not found:
        raise AssertionError(f"{cls.__name__}.examples yields nothing to check")
    return found


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
