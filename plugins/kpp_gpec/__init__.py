"""GPEC: how far an explanation can be trusted, given the decision boundary of the model and the explainer's own error.

Classes are loaded on first use (PEP 562), so that finding this plugin costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import kpp

if TYPE_CHECKING:
    from kpp_gpec.bisection import bisect as bisect
    from kpp_gpec.bisection_sampler import BisectionSampler as BisectionSampler
    from kpp_gpec.boundary import AbstractBoundarySampler as AbstractBoundarySampler
    from kpp_gpec.boundary import BoundarySample as BoundarySample
    from kpp_gpec.conformal import ConformalCheck as ConformalCheck
    from kpp_gpec.conformal import conformal_check as conformal_check
    from kpp_gpec.conformal import widen as widen
    from kpp_gpec.fitted import FittedGPEC as FittedGPEC
    from kpp_gpec.geodesics import Geodesics as Geodesics
    from kpp_gpec.geodesics import geodesic_distances as geodesic_distances
    from kpp_gpec.gpec import GPEC as GPEC
    from kpp_gpec.gradient import GradientSampler as GradientSampler
    from kpp_gpec.images import interval_bounds as interval_bounds
    from kpp_gpec.images import plot_interval_bounds as plot_interval_bounds
    from kpp_gpec.kernel import WeightedExponentialGeodesic as WeightedExponentialGeodesic
    from kpp_gpec.margins import class_margin as class_margin
    from kpp_gpec.margins import level_margin as level_margin
    from kpp_gpec.margins import steep_margin as steep_margin
    from kpp_gpec.multitask import MultitaskProcess as MultitaskProcess
    from kpp_gpec.naive import NaiveGP as NaiveGP
    from kpp_gpec.neural import FittedMLPClassifier as FittedMLPClassifier
    from kpp_gpec.neural import MLPClassifier as MLPClassifier
    from kpp_gpec.pgd import PGDSampler as PGDSampler
    from kpp_gpec.process import ExplanationProcess as ExplanationProcess
    from kpp_gpec.superpixels import grid_superpixels as grid_superpixels
    from kpp_gpec.superpixels import label_groups as label_groups
    from kpp_gpec.superpixels import slic_superpixels as slic_superpixels

_EXPORTS = {
    "AbstractBoundarySampler": "boundary",
    "BisectionSampler": "bisection_sampler",
    "BoundarySample": "boundary",
    "FittedMLPClassifier": "neural",
    "ExplanationProcess": "process",
    "ConformalCheck": "conformal",
    "FittedGPEC": "fitted",
    "GPEC": "gpec",
    "Geodesics": "geodesics",
    "GradientSampler": "gradient",
    "MLPClassifier": "neural",
    "PGDSampler": "pgd",
    "MultitaskProcess": "multitask",
    "NaiveGP": "naive",
    "WeightedExponentialGeodesic": "kernel",
    "bisect": "bisection",
    "class_margin": "margins",
    "conformal_check": "conformal",
    "geodesic_distances": "geodesics",
    "grid_superpixels": "superpixels",
    "interval_bounds": "images",
    "label_groups": "superpixels",
    "level_margin": "margins",
    "plot_interval_bounds": "images",
    "slic_superpixels": "superpixels",
    "steep_margin": "margins",
    "widen": "conformal",
}


@kpp.hookimpl
def register_kernels() -> dict[str, type]:
    """Offer the kernel of this package."""
    from kpp_gpec.kernel import WeightedExponentialGeodesic

    return {"WeightedExponentialGeodesic": WeightedExponentialGeodesic}


@kpp.hookimpl
def register_explainers() -> dict[str, type]:
    """Offer the explainers of this package."""
    from kpp_gpec.gpec import GPEC
    from kpp_gpec.multitask import MultitaskProcess as MultitaskProcess
    from kpp_gpec.naive import NaiveGP

    return {"gpec": GPEC, "naive-gp": NaiveGP}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
