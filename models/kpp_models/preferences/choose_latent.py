"""Whether a model of preferences samples its latent values, which depends on the inference."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from kpp.inference import NUTS, Laplace

Latent = TypeVar("Latent", bound=Any)  # a model with the field `latent`


def choose_latent(model: Latent, options: dict[str, Any]) -> tuple[Latent, dict[str, Any]]:
    """Return a model whose `latent` goes with the inference, and options of `fit` with the inference to use.

    By default NUTS samples the latent values, and Laplace's approximation is corrected by importance weights.
    """
    inference = options.get("inference")
    if isinstance(inference, Laplace) and inference.importance is None and model.latent in (None, "laplace"):
        options = {**options, "inference": dataclasses.replace(inference, importance=True)}
    samples = inference is None or isinstance(inference, NUTS)
    return (dataclasses.replace(model, latent="sample") if model.latent is None and samples else model), options
