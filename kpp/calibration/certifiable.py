"""Which models and explanations `kpp.certify` can judge."""

from __future__ import annotations

from typing import Any

from kpp.data.tables import Schema
from kpp.inference import AbstractModel

#: The attribute ``uncertainty`` of explanations whose draws are those of the whole law of the function.
WHOLE = ("full", "function only")


def check_certifiable(model: AbstractModel, data: dict[str, Any], schema: Schema | None) -> None:
    """Raise TypeError if a model of some data is none that `certify` takes."""
    if (
        not model.observes_points
        or not model.has_function_posterior
        or schema is None
        or getattr(data.get("x"), "ndim", 0) != 2
    ):
        raise TypeError(
            "a certificate needs a Gaussian process of one function that is observed at the rows of a table alone, "
            f"such as kpp_models.GPRegression and kpp_models.GPClassification, got {type(model).__name__}"
        )
