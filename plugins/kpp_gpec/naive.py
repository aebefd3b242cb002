"""The explainer "naive-gp": a Gaussian process of explanations without a boundary, for comparison with GPEC."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

import equinox as eqx

from kpp.explanations import AbstractExplainer, AbstractPointsExplainer, Explanation, Inputs
from kpp.typing import RngKey
from kpp_gpec.background import freeze_background, freeze_options
from kpp_gpec.fitted import FittedGPEC
from kpp_gpec.gpec import GPEC, example


class NaiveGP(AbstractPointsExplainer):
    r"""Explanations with the uncertainty of a Gaussian process with an RBF kernel: GPEC without the boundary.

    .. math:: E_{ij} = f_j(x_i) + \varepsilon_{ij}, \qquad f_j \sim \mathrm{GP}(0, \sigma_j^2\, k_{\mathrm{RBF}})

    The first part of its variance is called "distance": it depends on the distance of a point from the explained
    points.

    Args:
        base_explainer, background, explainer_options, output: As for `GPEC`.
        lengthscale, variance, standardize, noise, num_repeats, min_noise_variance: As for `GPEC`.
        selection: As for `GPEC`; "evidence" by default.

    References:
        Hill, Masoomi, Torop, Ghimire and Dy, Boundary-aware uncertainty for feature attribution explainers, 2024,
        section 5.4.
    """

    base_explainer: Any
    background: Any = eqx.field(converter=freeze_background)
    explainer_options: Any = eqx.field(static=True, default=None, converter=freeze_options)
    output: int | str | None = eqx.field(static=True, default=None)
    lengthscale: Any = None
    variance: Any = None
    selection: str = eqx.field(static=True, default="evidence")
    standardize: bool = eqx.field(static=True, default=True)
    noise: Any = eqx.field(static=True, default="explainer")
    num_repeats: int = eqx.field(static=True, default=5)
    min_noise_variance: float = eqx.field(static=True, default=0.0)

    requires: ClassVar = "callable"
    additive: ClassVar = False

    def __check_init__(self) -> None:
        self._as_gpec()

    def _as_gpec(self) -> GPEC:
        """Return the same explainer as a `GPEC` without a boundary, which does the computations."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return GPEC(**fields, boundary=None)

    def fit(
        self, predictor: object, *, explanation: Explanation | None = None, rng_key: RngKey | None = None
    ) -> FittedGPEC:
        """Explain the background and fit the processes.

        Args:
            predictor: As for `GPEC.fit`.
            explanation: As for `GPEC.fit`.
            rng_key: A JAX random key, for explainers that sample.

        Raises:
            TypeError: As `GPEC.fit`.
            ValueError: As `GPEC.fit`.
        """
        return self._as_gpec().fit(predictor, explanation=explanation, rng_key=rng_key)

    def explain_inputs(self, inputs: Inputs, *, rng_key: RngKey | None = None) -> Explanation:
        """Fit to the background, and predict the explanations of the points; see `FittedGPEC.explain`."""
        return self._as_gpec().explain_inputs(inputs, rng_key=rng_key)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractExplainer, Any, Any]]:
        explainer, function, background, x = example(rng_key)
        yield cls(explainer, background, lengthscale=1.0, variance=0.5, noise=0.01), function, x
