"""The inducing points of models of tables: the fields, their checks, and the placement of the points."""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
from jaxtyping import Array

from kpp.data.tables import Schema
from kpp.foundation.validation import count
from kpp.gp import read_data
from kpp.gp.toolkit import InducingSettings, code_columns, place_inducing
from kpp.inference import Data
from kpp.kernels import AbstractKernel
from kpp.kernels.toolkit import point_rows
from kpp.priors import leaf_shape
from kpp.typing import Leaf

#: What to do with more rows than an exact model can have.
ADVICE = "use latent='inducing' with `num_inducing` points, or a kernel with finite features, or "

Model = TypeVar("Model", bound="AbstractInducing")


class _Fields:
    """Fields of every final class, in a plain class for the sake of type checkers; see `kpp.foundation.modules`."""

    kernel: eqx.AbstractVar[AbstractKernel]
    latent: eqx.AbstractVar[str]


class AbstractInducing(_Fields, eqx.Module):
    """The settings of inducing points, fields of every model that may have them; `kpp_models.GPRegression` has a list.

    A model inherits from this class in addition to the base of its kind.
    """

    num_inducing: int | None = eqx.field(static=True, default=None, kw_only=True)
    inducing_points: Leaf | None = eqx.field(converter=point_rows("inducing_points"), default=None, kw_only=True)
    learn_inducing: bool = eqx.field(static=True, default=False, kw_only=True)
    seed: int = eqx.field(static=True, default=0, kw_only=True)

    def __check_init__(self) -> None:
        given = self.num_inducing is not None or self.inducing_points is not None
        if given != (self.latent == "inducing"):
            raise ValueError(
                "`num_inducing` or `inducing_points` go with latent='inducing', which needs one of them, got "
                f"{'one' if given else 'neither'} with latent={self.latent!r}"
            )
        if self.learn_inducing and not given:
            raise ValueError(
                "`learn_inducing` needs latent='inducing' with `num_inducing` or `inducing_points`, got neither"
            )
        if self.num_inducing is not None:
            count(self.num_inducing, "num_inducing")

    def read_and_place(
        self: Model,
        x: object,
        y: object,
        read_targets: Callable[..., Array],
        *,
        by_features: bool = False,
        num_columns: int | None = None,
        advice: str = ADVICE,
    ) -> tuple[Model, dict[str, Any], Schema]:
        """Read points and observations by `kpp.gp.read_data`, and place the inducing points among the points.

        `num_columns` is the number of columns for each row of a model without inducing points.
        """
        columns = num_columns
        if self.latent == "inducing":
            points = self.inducing_points
            columns = self.num_inducing if points is None else leaf_shape(points)[0]
        model, data, schema = read_data(
            self, x, y, read_targets, by_features=by_features, num_inducing=columns, advice=advice
        )
        if self.latent != "inducing":
            return model, data, schema
        settings = InducingSettings(self.inducing_points, self.num_inducing, self.learn_inducing, self.seed)
        placed = place_inducing(settings, data["x"], code_columns(model.kernel, data["x"]))
        changes = {"inducing_points": placed, "num_inducing": None, "learn_inducing": False}
        return dataclasses.replace(model, **changes), data, schema  # type: ignore[type-var]

    def site_dims(self, data: Data) -> dict[str, tuple[str, ...]]:
        """Name the axes of inducing points that are learned."""
        return {"inducing_points": ("inducing_point", "feature")}


def check_minibatch(minibatch: int | None, latent: str | None) -> None:
    """Raise ValueError if a minibatch is given without inducing points, or is not a positive integer."""
    if minibatch is None:
        return
    if latent != "inducing":
        raise ValueError(f"`minibatch` needs latent='inducing', got {minibatch} with latent={latent!r}")
    count(minibatch, "minibatch")
