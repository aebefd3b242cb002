"""The explainer "gpec"."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from kpp import RKHSFunction, registry
from kpp.explanations import AbstractExplainer, AbstractPointsExplainer, Explanation, Inputs
from kpp.foundation.caution import KppWarning
from kpp.foundation.validation import as_finite_array, at_least, check_rng_key, check_type, count, one_of, positive
from kpp.games import Interventional
from kpp.kernels import RBF
from kpp.runtime.batching import call_in_chunks
from kpp.typing import RngKey
from kpp_gpec.background import Prepared, check_explainer, check_noise, freeze_background, freeze_options, prepare
from kpp_gpec.boundary.bisection_sampler import BisectionSampler
from kpp_gpec.boundary.geodesics import geodesic_distances
from kpp_gpec.boundary.margins import class_margin, level_margin, steep_margin
from kpp_gpec.boundary.sampler import BoundarySample
from kpp_gpec.fitted import FittedGPEC
from kpp_gpec.fitted_output import FittedOutput
from kpp_gpec.process.geodesic_kernel import WeightedExponentialGeodesic, farthest_points
from kpp_gpec.process.hyperparameters import METHODS, select
from kpp_gpec.process.multitask import estimate_correlations

#: The definitions of the boundary of a model.
MARGINS = ("class", "level", "steep")

# The half-width of the differences for the steepness of a function, in standard deviations.
_STEP = 0.05


class GPEC(AbstractPointsExplainer):
    r"""Explanations with an uncertainty that reflects the decision boundary: a Gaussian process for any explainer.

    Explanations of a background are noisy observations of a Gaussian process whose kernel compares points by the nearby
    decision boundary (`WeightedExponentialGeodesic`), times an RBF kernel of the inputs, without which the variance far
    from every boundary would not return to the prior variance:

    .. math::

        E_{ij} = f_j(x_i) + \varepsilon_{ij}, \qquad
        f_j \sim \mathrm{GP}(0, \sigma_j^2\, k^*_{\mathrm{WEG}}\, k_{\mathrm{RBF}}), \qquad
        \varepsilon_{ij} \sim N(0, U_{ij})

    The intervals are wide where the boundary is complex, and are not calibrated: with the default rule, 90 % intervals
    of new rows held some 80 % of the exact explanations in simulations, with "evidence" 91 %. `conformal_check`
    measures and `widen` corrects them. The attribute ``uncertainty`` of an explanation says which it is.

    Inputs are standardized by the background's means and standard deviations. With several outputs, each has its own
    boundary, of one class against the rest, and its own process. Hyperparameters that are None are chosen.

    Args:
        base_explainer: The explainer whose uncertainty is estimated: an instance, or its registered name.
        background: The points whose explanations are computed first, and from which the boundary is searched, (n, d),
            or a data frame. An explainer given by name gets at most 100 of them, evenly spaced, as its own background.
        explainer_options: The options of an explainer given by name: numbers, text and tuples of them.
        output: Which output to explain, by position or name; None for all.
        margin: The definition of the boundary: "class", where the predicted class changes (a single output must be a
            probability); "level", where the output is `level`; "steep", around the regions where its gradient is
            largest.
        level: The level, by default the median of the output over the background; for "steep" the share of the
            background that is not steep, by default 0.9.
        boundary: The sampler of the boundary; `BisectionSampler()` by default. None for no boundary: the kernel is
            then the RBF kernel alone, as in `NaiveGP`.
        decay: :math:`\lambda`, the rate at which the similarity decreases along the boundary, or None.
        concentration: :math:`\rho`, which concentrates the weights on near samples of the boundary, or None.
        lengthscale: The lengthscale of the RBF factor, a number or one per feature, in standard units, or None.
        variance: The prior variance of each feature's contributions, a number or (d,), or None.
        feature_covariance: The prior covariance of the features' contributions, which are then correlated: (d, d),
            whose diagonal replaces `variance`; "estimated" for the covariance of the background's explanations, scaled
            to `variance`; None for independent features. Other hyperparameters are chosen as if they were independent.
        selection: How hyperparameters are chosen: "heuristic", by a rule under which the boundary dominates (see the
            module `hyperparameters`), and prior variances by evidence; "evidence"; "cross-validation" (leaving one
            out).
        rbf: Whether the kernel has the RBF factor.
        normalized: Whether the WEG kernel is normalized.
        standardize: Whether inputs are standardized.
        noise: The source of the noise: "explainer" for the explainer's own variance, otherwise its squared standard
            errors, otherwise 0; "repeats" for the variance between `num_repeats` explanations with different keys; or a
            variance.
        num_repeats: The number of explanations for "repeats".
        min_noise_variance: The smallest variance of the noise.
        num_neighbors: The number of neighbors in the graph for geodesic distances.
        max_landmarks: The largest number of boundary samples with their own geodesic distances; see
            `WeightedExponentialGeodesic.thin`.
        num_inducing: The number of inducing points that stand for the background, if there are many points; it needs
            noise. None for the exact process: with `feature_covariance` at most 8000 points times features, else some
            10,000 points.

    References:
        Hill, Masoomi, Torop, Ghimire and Dy, Boundary-aware uncertainty for feature attribution explainers, 2024.
    """

    base_explainer: Any
    background: Any = eqx.field(converter=freeze_background)
    explainer_options: Any = eqx.field(static=True, default=None, converter=freeze_options)
    output: int | str | None = eqx.field(static=True, default=None)
    margin: str = eqx.field(static=True, default="class")
    level: float | None = eqx.field(static=True, default=None)
    boundary: Any = eqx.field(default_factory=BisectionSampler)
    decay: float | None = eqx.field(static=True, default=None)
    concentration: float | None = eqx.field(static=True, default=None)
    lengthscale: Any = None
    variance: Any = None
    feature_covariance: Any = None
    selection: str = eqx.field(static=True, default="heuristic")
    rbf: bool = eqx.field(static=True, default=True)
    normalized: bool = eqx.field(static=True, default=True)
    standardize: bool = eqx.field(static=True, default=True)
    noise: Any = eqx.field(static=True, default="explainer")
    num_repeats: int = eqx.field(static=True, default=5)
    min_noise_variance: float = eqx.field(static=True, default=0.0)
    num_neighbors: int = eqx.field(static=True, default=10)
    max_landmarks: int = eqx.field(static=True, default=1000)
    num_inducing: int | None = eqx.field(static=True, default=None)

    requires: ClassVar = "callable"
    additive: ClassVar = False

    def __check_init__(self) -> None:
        check_explainer(self.base_explainer, self.explainer_options)
        check_noise(self.noise, self.num_repeats, self.min_noise_variance)
        one_of(self.margin, "margin", MARGINS)
        one_of(self.selection, "selection", METHODS)
        if isinstance(self.feature_covariance, str) and self.feature_covariance != "estimated":
            raise ValueError(
                f"`feature_covariance` must be a matrix, 'estimated' or None, got {self.feature_covariance!r}"
            )
        if not (self.feature_covariance is None or isinstance(self.feature_covariance, str) or self.variance is None):
            raise ValueError("give `variance` or a matrix `feature_covariance`, not both")
        check_type(self.boundary, "boundary", ("AbstractBoundarySampler", "None"))
        for name in ("decay", "concentration"):
            if getattr(self, name) is not None:
                at_least(getattr(self, name), name, 0, infinity_allowed=False)
        for name in ("lengthscale", "variance"):
            if getattr(self, name) is not None:
                positive(getattr(self, name), name)
        count(self.num_neighbors, "num_neighbors")
        count(self.max_landmarks, "max_landmarks")
        if self.num_inducing is not None:
            count(self.num_inducing, "num_inducing")

    @classmethod
    def published(cls, base_explainer: str | AbstractExplainer, background: ArrayLike, **options: Any) -> GPEC:
        r"""Return GPEC with the settings of the paper's experiments.

        The kernel is the normalized WEG kernel alone, on inputs that are not standardized, :math:`\lambda = 1`,
        :math:`\rho = 0.1`, prior variance 1, and the noise is at least 1e-4. The paper's uncertainty is the width of an
        interval of four standard deviations, ``4 * explanation.variance**0.5``.

        Args:
            base_explainer: As for the class.
            background: As for the class.
            **options: Further options, which replace these.
        """
        settings: dict[str, Any] = {"decay": 1.0, "concentration": 0.1, "variance": 1.0, "rbf": False}
        settings |= {"standardize": False, "min_noise_variance": 1e-4}
        return cls(base_explainer, background, **{**settings, **options})

    def fit(
        self,
        predictor: object,
        *,
        explanation: Explanation | None = None,
        boundary: BoundarySample | Sequence[BoundarySample] | None = None,
        rng_key: RngKey | None = None,
    ) -> FittedGPEC:
        """Explain the background, sample the boundary and fit the processes.

        Args:
            predictor: A `kpp.Fit`, a `kpp.RKHSFunction`, a `kpp.GPPosterior`, a fitted estimator, or a function from
                points to predictions. If explanations have draws or a law, their total variance is used as noise, and
                the boundary is computed for the mean prediction.
            explanation: An explanation of the background; if it is given, the explainer is not called.
            boundary: A boundary sample; a sequence with one per output if there are several. If it is given, no
                boundary is searched; `BoundarySample.from_points` makes one of known points.
            rng_key: A JAX random key, for the sampler and the explainer.

        Raises:
            TypeError: If the predictor is not of the kind that the explainer needs, or a random key is needed and
                missing.
            ValueError: If arguments are not consistent.
        """
        return self._fit(self.read_inputs(predictor, self.background), explanation, boundary, rng_key)

    def explain_inputs(self, inputs: Inputs, *, rng_key: RngKey | None = None) -> Explanation:
        """Fit to the background, and predict the explanations of the points; see `FittedGPEC.explain`."""
        return self._fit(inputs, None, None, rng_key).explain(inputs.rows)

    def _fit(
        self,
        inputs: Inputs,
        explanation: Explanation | None,
        boundary: BoundarySample | Sequence[BoundarySample] | None,
        rng_key: RngKey | None,
    ) -> FittedGPEC:
        keys = [None] * 3 if rng_key is None else list(jax.random.split(check_rng_key(rng_key), 3))
        prepared = prepare(self, inputs, explanation, keys[0])
        samples = self._samples(prepared, boundary, keys[1])
        rng = np.random.default_rng(0 if keys[2] is None else np.asarray(jax.random.bits(keys[2], (4,))))
        z, outputs, known = prepared.standardized(prepared.x), [], {}
        for number, sample in enumerate(samples):
            if id(sample) not in known:
                known[id(sample)] = self._geodesic(prepared, sample)
            weg, num_components = known[id(sample)]
            values, noise = (array[..., number] for array in prepared.seen[:2])
            given = {name: getattr(self, name) for name in ("decay", "concentration", "lengthscale", "variance")}
            correlations, variance = _correlations(self.feature_covariance, values)
            given["variance"] = self.variance if variance is None else variance
            rbf = self.rbf or weg is None
            selected = select(weg, z, values, noise, given, method=self.selection, rbf=rbf, rng=rng)
            data, how = (z, values, noise), (correlations, self.num_inducing)
            outputs.append(FittedOutput.create(data, how, selected, weg, sample, num_components))
        return self._finish(prepared, outputs)

    def _samples(
        self, prepared: Prepared, given: BoundarySample | Sequence[BoundarySample] | None, rng_key: RngKey | None
    ) -> Sequence[BoundarySample | None]:
        """Return the boundary sample of each output; two classes share one boundary."""
        num_outputs = len(prepared.known["output_positions"])
        if self.boundary is None:
            if given is not None:
                raise ValueError("no `boundary` can be given to an explainer whose own `boundary` is None")
            return [None] * num_outputs
        if given is not None:
            samples = [given] if isinstance(given, BoundarySample) else list(given)
            if len(samples) != num_outputs:
                raise ValueError(f"`boundary` must hold one sample per output, {num_outputs}, got {len(samples)}")
            for sample in samples:
                if sample.points.shape[1] != prepared.x.shape[1]:
                    raise ValueError(
                        f"`boundary` must have points with {prepared.x.shape[1]} features, as the background, got "
                        f"{sample.points.shape[1]}"
                    )
            return samples
        key = check_rng_key(rng_key)
        if self.margin == "class" and prepared.num_outputs == 2:
            return [self.boundary.sample(key, class_margin(prepared.function, 1), prepared.x)] * num_outputs
        keys = jax.random.split(key, num_outputs)
        margins = (self._margin(prepared, position) for position in prepared.known["output_positions"])
        return [self.boundary.sample(one, margin, prepared.x) for one, margin in zip(keys, margins, strict=True)]

    def _margin(self, prepared: Prepared, position: int) -> Callable[[Any], Any]:
        function, several = prepared.function, prepared.num_outputs > 1
        if self.margin == "class":
            return class_margin(function, position if several else 1)
        if self.margin == "steep":
            quantile = 0.9 if self.level is None else self.level
            return steep_margin(function, prepared.x, quantile=quantile, step=_STEP, index=position)
        level = self.level
        if level is None:
            level = float(np.median(call_in_chunks(function, prepared.x)[0].reshape(len(prepared.x), -1)[:, position]))
        return level_margin(function, level, position)

    def _geodesic(
        self, prepared: Prepared, sample: BoundarySample | None
    ) -> tuple[WeightedExponentialGeodesic | None, int]:
        """Return the WEG kernel of a boundary sample before its parameters are chosen, and its number of components."""
        if sample is None:
            return None, 0
        if not sample.found:
            told = f"{sample.status}; the uncertainty knows no boundary, and the kernel is the RBF factor alone"
            warnings.warn(told, KppWarning, stacklevel=2)
            return None, 0
        points = prepared.standardized(np.asarray(sample.points))
        geodesics = geodesic_distances(points, self.num_neighbors)
        distances, members = np.asarray(geodesics.distances), None
        if len(distances) > self.max_landmarks:
            # This comes before the kernel is built, which would copy and check the whole matrix.
            chosen, members = farthest_points(distances, self.max_landmarks)
            distances = distances[np.ix_(chosen, chosen)]
        kernel = WeightedExponentialGeodesic(points, distances, 1.0, 1.0, self.normalized, members)
        return kernel, geodesics.num_components

    def _finish(self, prepared: Prepared, outputs: Sequence[FittedOutput]) -> FittedGPEC:
        """Return the fitted outputs together with the names of points and explanations."""
        known, described = prepared.known, [_describe_boundary(output) for output in outputs]
        record = {
            "explainer": known["name"],
            "explained_by": prepared.explainer,
            "noise": prepared.seen.source,
            "given_noise": None if isinstance(self.noise, str) else float(self.noise),
            "min_noise_variance": float(self.min_noise_variance),
            "uncertainty": "not calibrated",
            "num_explained": len(prepared.x),
            "boundary": described[0] if known["output_names"] is None else described,
        }
        return FittedGPEC(**known, outputs=tuple(outputs), record=record)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractExplainer, Any, Any]]:
        explainer, function, background, x = example(rng_key)
        sampler = BisectionSampler(max_points=12)
        chosen: dict[str, Any] = {"decay": 1.0, "concentration": 1.0, "lengthscale": 1.0, "variance": 1.0}
        yield cls(explainer, background, margin="level", boundary=sampler, **chosen), function, x
        yield cls(explainer, background, margin="level", level=0.1, boundary=sampler, noise=0.01, **chosen), function, x


class NaiveGP(AbstractPointsExplainer):
    r"""Explanations with the uncertainty of a Gaussian process with an RBF kernel: GPEC without the boundary.

    .. math:: E_{ij} = f_j(x_i) + \varepsilon_{ij}, \qquad f_j \sim \mathrm{GP}(0, \sigma_j^2\, k_{\mathrm{RBF}})

    The first part of its variance is called "distance": it depends on the distance of a point from the explained
    points.

    Args:
        base_explainer, background, explainer_options, output: As for `GPEC`.
        lengthscale, variance, standardize, noise, num_repeats, min_noise_variance, num_inducing: As for `GPEC`.
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
    num_inducing: int | None = eqx.field(static=True, default=None)

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
        """Explain the background and fit the processes; see `GPEC.fit`."""
        return self._as_gpec().fit(predictor, explanation=explanation, rng_key=rng_key)

    def explain_inputs(self, inputs: Inputs, *, rng_key: RngKey | None = None) -> Explanation:
        return self._as_gpec().explain_inputs(inputs, rng_key=rng_key)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractExplainer, Any, Any]]:
        explainer, function, background, x = example(rng_key)
        yield cls(explainer, background, lengthscale=1.0, variance=0.5, noise=0.01), function, x


def example(rng_key: RngKey) -> tuple[AbstractExplainer, RKHSFunction, Any, Any]:
    """Return an explainer, a function in an RKHS, a background and points to explain."""
    first, second = jax.random.split(rng_key)
    points, x = jax.random.normal(first, (8, 2)), jax.random.normal(second, (2, 2))
    function = RKHSFunction(RBF(1.0), points, jnp.sin(jnp.arange(8.0)))
    return registry.get("explainers", "rkhs-shap")(Interventional(points), progress=False), function, points, x


def _correlations(
    covariance: str | ArrayLike | None, values: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the correlations of the features, and their variances if they are given as a covariance."""
    if covariance is None:
        return None, None
    if isinstance(covariance, str):
        return estimate_correlations(values), None
    matrix = np.asarray(as_finite_array(covariance, "feature_covariance"))
    wanted = (values.shape[1],) * 2
    if matrix.shape != wanted:
        raise ValueError(
            f"`feature_covariance` must have shape {wanted}, one row per feature, got shape {matrix.shape}"
        )
    lowest = np.linalg.eigvalsh((matrix + matrix.T) / 2)[0]
    if not np.allclose(matrix, matrix.T) or np.diagonal(matrix).min() <= 0 or lowest < -1e-10 * np.abs(matrix).max():
        raise ValueError("`feature_covariance` must be symmetric, positive semi-definite and positive on its diagonal")
    scale = np.sqrt(np.diagonal(matrix))
    return matrix / np.outer(scale, scale), np.diagonal(matrix)


def _describe_boundary(output: FittedOutput) -> dict[str, Any]:
    """Return the description of a boundary for the attributes of an explanation."""
    sample = output.boundary
    if sample is None:
        return {"num_points": 0, "status": "none was looked for", "kernel": "RBF"}
    weg, rbf = output.geodesic is not None, output.selected.lengthscale is not None
    return {
        "num_points": sample.num_points,
        "num_components": output.num_components,
        "status": sample.status,
        "kernel": " * ".join(name for name, used in (("WEG", weg), ("RBF", rbf)) if used),
    }
