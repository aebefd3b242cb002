"""The explainer "naive-gp": a Gaussian process of explanations that knows no boundary, to compare GPEC with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from kpp import RKHSFunction, registry
from kpp.explanations import AbstractExplainer, Explanation, resolve
from kpp.games import Interventional
from kpp.kernels import RBF
from kpp.typing import RngKey
from kpp.validation import check_rng_key
from kpp_gpec.background import as_background, check_explainer, finish, freeze_options, prepare, readable
from kpp_gpec.fitted import FittedGPEC, FittedOutput
from kpp_gpec.noisy_explanations import check_noise
from kpp_gpec.process.explanation_process import ExplanationProcess
from kpp_gpec.process.hyperparameters import METHODS, combine_kernels, select

__all__ = ["NaiveGP", "example"]


class NaiveGP(AbstractExplainer):
    r"""Explanations with the uncertainty of a Gaussian process with an RBF kernel: GPEC without the boundary.

    .. math:: E_{nd} = f_d(x_n) + \varepsilon_{nd}, \qquad f_d \sim \mathrm{GP}(0, s_d^2\, k_{\mathrm{RBF}})

    The first part of its variance is called "distance": it says how far from explained points a point is.

    Args:
        base_explainer: As for `GPEC`.
        background: As for `GPEC`.
        explainer_options: As for `GPEC`.
        output: As for `GPEC`.
        lengthscale: As for `GPEC`.
        variance: As for `GPEC`.
        selection: As for `GPEC`; "evidence" unless told otherwise.
        standardize: As for `GPEC`.
        noise: As for `GPEC`.
        num_repeats: As for `GPEC`.
        min_noise_variance: As for `GPEC`.

    References:
        Hill, Masoomi, Torop, Ghimire and Dy, Boundary-aware uncertainty for feature attribution explainers, 2024,
        section 5.4.
    """

    base_explainer: Any
    background: Any = eqx.field(converter=as_background)
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
        """Refuse options that are none of the choices, or out of range."""
        check_explainer(self.base_explainer, self.explainer_options)
        check_noise(self.noise, self.num_repeats, self.min_noise_variance)
        if self.selection not in METHODS:
            raise ValueError(f"`selection` must be one of {METHODS}, got {self.selection!r}")

    def fit(
        self, predictor: Any, *, explanation: Explanation | None = None, rng_key: RngKey | None = None
    ) -> FittedGPEC:
        """Explain the background and fit the processes.

        Args:
            predictor: As for `GPEC.fit`.
            explanation: As for `GPEC.fit`.
            rng_key: A JAX random key, for explainers that sample.

        Returns:
            The fitted processes.

        Raises:
            TypeError: As `GPEC.fit`.
            ValueError: As `GPEC.fit`.
        """
        return self._fit(predictor, None, explanation, rng_key)

    def explain(self, predictor: Any, x: Any, *, rng_key: RngKey | None = None) -> Explanation:
        """Fit to the background, and predict the explanations of p points with their uncertainty.

        Args:
            predictor: As for `GPEC.fit`.
            x: The points to explain, (p, d), or a data frame.
            rng_key: A JAX random key, for explainers that sample.

        Returns:
            The explanation; see `FittedGPEC.explain`.

        Raises:
            TypeError: As `GPEC.fit`.
            ValueError: As `GPEC.fit`, or if `x` is not as said.
        """
        resolved = resolve(readable(predictor, self.background), x, self.requires)
        return self._fit(predictor, resolved.schema, None, rng_key).explain(np.asarray(resolved.x))

    def _fit(self, predictor: Any, schema: Any, explanation: Any, rng_key: Any) -> FittedGPEC:
        keys = [None] * 2 if rng_key is None else list(jax.random.split(check_rng_key(rng_key)))
        prepared = prepare(self, predictor, explanation, keys[0], schema)
        rng = np.random.default_rng(0 if keys[1] is None else np.asarray(jax.random.bits(keys[1], (4,))))
        given = {"lengthscale": self.lengthscale, "variance": self.variance}
        outputs = []
        for number in range(len(prepared.positions)):
            data = prepared.z, prepared.seen.values[..., number], prepared.seen.noise[..., number]
            selected = select(None, *data, given, method=self.selection, rbf=True, rng=rng)
            kernel = combine_kernels(None, selected.lengthscale)
            process = ExplanationProcess.condition(kernel, *data, selected.variance)
            outputs.append(FittedOutput(process, selected, None, None))
        return finish(self, "naive-gp", prepared, outputs)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractExplainer, Any, Any]]:
        """Yield an explainer with chosen hyperparameters and one with given ones, a model and points."""
        explainer, function, background, x = example(rng_key)
        yield cls(explainer, background, lengthscale=1.0, variance=0.5, noise=0.01), function, x


def example(rng_key: RngKey) -> tuple[AbstractExplainer, RKHSFunction, Any, Any]:
    """Return an explainer of the core's interface, a function of an RKHS, a background and points to explain."""
    first, second = jax.random.split(rng_key)
    points, x = jax.random.normal(first, (8, 2)), jax.random.normal(second, (2, 2))
    function = RKHSFunction(RBF(1.0), points, jnp.sin(jnp.arange(8.0)))
    return registry.get("explainers", "rkhs-shap")(Interventional(points), progress=False), function, points, x
