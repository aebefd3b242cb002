"""The inducing points of models of tables: checks of the fields, and the placement of the points."""

from __future__ import annotations

import dataclasses
from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import Array, Float

from kpp.foundation.validation import count
from kpp.gp.toolkit import InducingSettings, code_columns, place_inducing
from kpp.kernels import AbstractKernel
from kpp.priors import leaf_shape
from kpp.typing import Leaf

#: What to do with more rows than an exact model can have.
ADVICE = "use latent='inducing' with `num_inducing` points, or a kernel with finite features, or "


@runtime_checkable
class HasInducing(Protocol):
    """A model with these fields; `kpp_models.GPRegression` describes them."""

    kernel: AbstractKernel
    latent: str
    num_inducing: int | None
    inducing_points: Leaf | None
    learn_inducing: bool
    seed: int


Model = TypeVar("Model", bound=HasInducing)


def check_inducing(model: HasInducing) -> None:
    """Raise ValueError if inducing points are given or missing against `latent`."""
    given = model.num_inducing is not None or model.inducing_points is not None
    if given != (model.latent == "inducing"):
        raise ValueError(
            "`num_inducing` or `inducing_points` go with latent='inducing', which needs one of them, got "
            f"{'one' if given else 'neither'} with latent={model.latent!r}"
        )
    if model.learn_inducing and not given:
        raise ValueError(
            "`learn_inducing` needs latent='inducing' with `num_inducing` or `inducing_points`, got neither"
        )
    if model.num_inducing is not None:
        count(model.num_inducing, "num_inducing")


def check_minibatch(minibatch: int | None, latent: str | None) -> None:
    """Raise ValueError if a minibatch is given without inducing points, or is not a positive integer."""
    if minibatch is None:
        return
    if latent != "inducing":
        raise ValueError(f"`minibatch` needs latent='inducing', got {minibatch} with latent={latent!r}")
    count(minibatch, "minibatch")


def number_of_inducing(model: HasInducing) -> int | None:
    """Return the number of inducing points of a model, or None if it has none."""
    return model.num_inducing if model.inducing_points is None else leaf_shape(model.inducing_points)[0]


def with_inducing_points(model: Model, x: Float[Array, "n d"]) -> Model:
    """Return a model, whose kernel fits the data, with its inducing points placed among the data, if it has any."""
    if model.latent != "inducing":
        return model
    settings = InducingSettings(model.inducing_points, model.num_inducing, model.learn_inducing, model.seed)
    placed = place_inducing(settings, x, code_columns(model.kernel, x))
    return dataclasses.replace(model, inducing_points=placed, num_inducing=None, learn_inducing=False)  # type: ignore[type-var]
