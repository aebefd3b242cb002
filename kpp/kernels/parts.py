"""Fields that hold kernels, and the abstract class of the kernels that are made of others."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable

import equinox as eqx
from jaxtyping import Array, Float

from kpp.kernels.base import AbstractKernel, AbstractProductKernel
from kpp.typing import Numbers, Points


def as_kernels(kernels: object) -> tuple[AbstractKernel, ...]:
    """Convert the field `kernels`: any iterable of at least one kernel."""
    if isinstance(kernels, AbstractKernel) or not isinstance(kernels, Iterable):
        raise TypeError(
            f"`kernels` must be a tuple of kernels, got {type(kernels).__name__}; `(kernel,)` is one of one"
        )
    kernels = tuple(kernels)
    if not kernels:
        raise ValueError("`kernels` must hold at least one kernel, got none")
    for kernel in kernels:
        if not isinstance(kernel, AbstractKernel):
            raise TypeError(f"`kernels` must hold kernels, got {type(kernel).__name__}")
    return kernels


def as_kernel(kernel: object, name: str = "kernel") -> AbstractKernel:
    """Return the value of the field called `name`, or raise TypeError if it is not a kernel."""
    if not isinstance(kernel, AbstractKernel):
        shown = f" {kernel!r}" if isinstance(kernel, (str, int, float)) else ""
        raise TypeError(f"`{name}` must be a kernel, got {type(kernel).__name__}{shown}")
    return kernel


def check_kernel_fields(module: eqx.Module) -> None:
    """Check that the fields called ``kernel`` or ``..._kernel`` hold a kernel, a tuple of kernels, or None."""
    for field in dataclasses.fields(module):  # type: ignore[arg-type]
        value = getattr(module, field.name, None)
        if (field.name == "kernel" or field.name.endswith("_kernel")) and value is not None:
            for kernel in value if isinstance(value, tuple) else (value,):
                as_kernel(kernel, field.name)


def features_of_product(kernels: Iterable[AbstractKernel], xs: Iterable[Points]) -> Float[Array, "n q"] | None:
    """Return features of a product of kernels if all have finitely many: all products of a feature of each."""
    found = [kernel.finite_features(x) for kernel, x in zip(kernels, xs, strict=True)]
    known = [features for features in found if features is not None]
    if len(known) < len(found):
        return None
    return functools.reduce(lambda one, two: (one[:, :, None] * two[:, None]).reshape(len(one), -1), known)


class AbstractComposite(AbstractKernel):
    """A kernel made of others, which is a product kernel if its parts are.

    `scale`, `factors` and `restrict` are those of the only term of `product_terms`; they raise TypeError if there are
    several.
    """

    @property
    def scale(self) -> Float[Array, ""]:
        """The factor that does not depend on the features, for a composite that is a product kernel."""
        return self._only_term().scale

    def factors(self, x1: Array, x2: Array) -> Float[Array, "d n1 n2"]:
        """Evaluate the factors at every pair of points, or raise TypeError if this is not a product kernel."""
        return self._only_term().factors(x1, x2)

    def restrict(self, mask: Numbers) -> AbstractProductKernel:
        """Leave out features, or raise TypeError if this is not a product kernel."""
        return self._only_term().restrict(mask)

    def _only_term(self) -> AbstractProductKernel:
        terms = self.product_terms()
        if len(terms) != 1:
            raise TypeError(
                f"{type(self).__name__} is a sum of {len(terms)} product kernels, not one; "
                "work on each of its `product_terms()`"
            )
        return terms[0]
