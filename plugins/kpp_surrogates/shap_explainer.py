"""The explainer "shap": any explainer of shap, so that all that takes an explainer of kpp takes it."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from kpp import AbstractExplainer, Explanation
from kpp.data.tables import is_table, read_points
from kpp.explanations import AbstractPointsExplainer, EstimatorFunction, Inputs
from kpp.explanations.toolkit import describe_key
from kpp.foundation.distribution import extra
from kpp.foundation.validation import check_rng_key, one_of
from kpp.typing import AnyArray, RngKey
from kpp_surrogates.converters import as_background, required_key
from kpp_surrogates.example_functions import function_with_draws, points, product, two_outputs

#: The algorithms of shap that are built here, for any function.
_ALGORITHMS = ("exact", "permutation")
# Base value plus contributions may miss the prediction by this share of the largest prediction or contribution: more
# than float32 rounds, in which XGBoost and networks compute, and less than any other scale of the predictions.
_TOLERANCE = 1e-3
# The evaluations of each point by permutations: shap's own default, or as many as some permutations need.
_EVALUATIONS, _LEAST_PERMUTATIONS = 500, 10
# Options of an explainer of trees that decide what its values mean.
_RECORDED = ("feature_perturbation", "model_output")
# NumPy's global generator, from which shap draws, belongs to one explanation at a time.
_global_generator = threading.RLock()


def _as_shap_explainer(value: Any) -> Any:
    """Convert the field `shap_explainer`."""
    if isinstance(value, str):
        return one_of(value, "shap_explainer", _ALGORITHMS)
    if not callable(value) or isinstance(value, type):
        raise TypeError(
            f"`shap_explainer` must be an explainer of shap, such as shap.TreeExplainer(model), or one of "
            f"{_ALGORITHMS}, got {value!r}"
        )
    return value


class ShapExplainer(AbstractPointsExplainer):
    r"""An explainer of shap as an explainer of kpp, for comparisons, plots, reports and GPEC.

    A shap explainer, such as ``shap.TreeExplainer(model)``, ``shap.DeepExplainer`` or ``shap.PermutationExplainer``,
    knows its model and background. The predictor of `kpp.explain` is then the function that it explains, on the same
    scale: base value plus contributions must be its prediction. None as the predictor takes these sums for the
    predictions.

    The name of an algorithm makes shap explain any predictor over a background: with the draws of a `kpp.Fit`, the
    contributions are a posterior.

    Args:
        shap_explainer: An explainer of shap, or another function from points (p, d) to a ``shap.Explanation``; or
            "exact" (all coalitions) or "permutation" (sampled orders of the features, which need a random key).
        background: The background points, (m, d), of an algorithm given by name. An explainer of shap has its own.
        check_additivity: Whether base value plus contributions must be the prediction, up to 0.1 percent of the largest
            prediction or contribution. Some explainers, such as ``shap.GradientExplainer``, add up only roughly.

    References:
        Lundberg and Lee, A unified approach to interpreting model predictions, 2017; Lundberg et al., From local
        explanations to global understanding with explainable AI for trees, 2020.
    """

    shap_explainer: Any = eqx.field(static=True, converter=_as_shap_explainer)
    background: Float[AnyArray, "m d"] | None = eqx.field(
        default=None, converter=lambda value: None if value is None else as_background(value)
    )
    check_additivity: bool = eqx.field(static=True, default=True)

    requires: ClassVar = "callable"
    additive: ClassVar = False  # not all explainers of shap are; `check_additivity` checks

    @property
    def reference_points(self) -> object:
        """The background of an algorithm; an explainer of shap has its own."""
        return self.background if isinstance(self.shap_explainer, str) else None

    def explain(self, predictor: object, x: object, *, rng_key: RngKey | None = None) -> Explanation:
        """Explain the predictions at p points.

        Args:
            predictor: The function that is explained, a fitted estimator or a `kpp.Fit`; None for the sums of base
                value and contributions.
            x: The points to explain, (p, d), or a data frame.
            rng_key: A JAX random key, from which NumPy's global generator, which shap uses, is seeded for the time of
                this explanation. Without a key an explainer of shap draws from it as it is.

        Raises:
            TypeError: If the predictor is not a function, or a random key is needed and missing.
            ValueError: If `x` does not fit, or the predictions are not base value plus contributions.
        """
        if predictor is None:
            return self._explain_sums(x, rng_key)
        return self.explain_inputs(self.read_inputs(predictor, x), rng_key=rng_key)

    def explain_inputs(self, inputs: Inputs, *, rng_key: RngKey | None = None) -> Explanation:
        if isinstance(self.shap_explainer, str):
            return self._explain_by_name(inputs, rng_key)
        rows = inputs.predictor.rows(inputs.rows) if isinstance(inputs.predictor, EstimatorFunction) else inputs.rows
        seen = _call(self.shap_explainer, rows, inputs.rows, rng_key)
        _check_sums(seen, inputs.predictions, _TOLERANCE if self.check_additivity else np.inf)
        return inputs.explanation(
            {**self._record(rng_key), **_index(seen), "additivity_error": _gap(seen, inputs.predictions)},
            **_arrays(seen),
            base_values=seen.base_values.values,
        )

    def _explain_by_name(self, inputs: Inputs, rng_key: RngKey | None) -> Explanation:
        """Explain by one of shap's algorithms, with all draws and outputs at once."""
        if inputs.background is None:
            raise TypeError(f"`background` must be given for the algorithm {self.shap_explainer!r}, got None")
        is_exact = self.shap_explainer == "exact"
        key = None if is_exact else required_key(rng_key, "shap")
        explain = functools.partial(_explain_exactly, inputs) if is_exact else functools.partial(_permute, inputs, key)
        seen = _call(explain, inputs.rows, inputs.rows, key)
        return inputs.explanation(
            {**self._record(key), "exact": is_exact},
            values=inputs.unfold(seen.values.values.reshape(*inputs.rows.shape, inputs.num_targets)),
            base_values=inputs.unfold(seen.base_values.values.reshape(-1, inputs.num_targets).mean(axis=0)),
        )

    def _explain_sums(self, x: object, rng_key: RngKey | None) -> Explanation:
        """Explain without a predictor."""
        if isinstance(self.shap_explainer, str):
            raise TypeError(f"`predictor` must be given for the algorithm {self.shap_explainer!r}, got None")
        rows, schema = read_points(x, "x")
        seen = _call(self.shap_explainer, x if is_table(x) else rows, rows, rng_key)
        return Explanation.create(
            **_arrays(seen),
            base_values=seen.base_values.values,
            predictions=seen.predictions.values,
            data=rows,
            schema=schema if is_table(x) else seen.schema,
            output_names=seen.output_names,
            attrs={**self._record(rng_key), **_index(seen), "predictions": "base value plus contributions"},
        )

    def _record(self, rng_key: RngKey | None) -> dict[str, Any]:
        """Return the record of what ran."""
        record: dict[str, Any] = {"explainer": "shap", "shap_explainer": self.shap_explainer}
        if not isinstance(self.shap_explainer, str):
            record["shap_explainer"] = type(self.shap_explainer).__name__
            owners = (self.shap_explainer, getattr(self.shap_explainer, "model", None))
            options = {
                name: getattr(owner, name, None) for owner in owners for name in _RECORDED if hasattr(owner, name)
            }
            record |= {name: option for name, option in options.items() if isinstance(option, str)}
        record["shap_version"] = importlib.metadata.version("shap")
        return record if rng_key is None else {**record, "rng_key": describe_key(rng_key)}

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractExplainer, Any, Any]]:
        background, x = points(rng_key)
        yield cls("exact", background), two_outputs, x
        yield cls("permutation", background), product, x
        yield cls("exact", background), function_with_draws(background), x


def _shap() -> Any:
    try:
        import shap
    except ImportError as error:
        raise ImportError(f"the explainer 'shap' needs shap, which is an extra: {extra('shap')}") from error
    return shap


def _explain_exactly(inputs: Inputs, rows: Float[np.ndarray, "p d"]) -> Any:
    """Explain by all coalitions."""
    return _shap().ExactExplainer(inputs.predict, inputs.background)(rows)


def _permute(inputs: Inputs, rng_key: RngKey, rows: Float[np.ndarray, "p d"]) -> Any:
    """Explain by permutations; shap seeds NumPy's generator anew, with or without a seed."""
    seed = int(jax.random.bits(rng_key, dtype=np.uint32))
    explainer = _shap().PermutationExplainer(inputs.predict, inputs.background, seed=seed)
    return explainer(rows, max_evals=max(_EVALUATIONS, 2 * _LEAST_PERMUTATIONS * (rows.shape[1] + 1)))


def _call(
    explainer: Callable[..., Any], rows: Any, points: Float[np.ndarray, "p d"], rng_key: RngKey | None
) -> Explanation:
    """Call an explainer of shap, and read its explanation of the points (p, d), of which `rows` are another form."""
    with _seeded(rng_key):
        found = explainer(_as_tensor(explainer, rows))
    base = getattr(found, "base_values", None)
    base = getattr(explainer, "expected_value", None) if base is None else base
    return Explanation.from_shap(found, base_values=base, data=points)


def _as_tensor(explainer: Any, rows: Any) -> Any:
    """Return points as the tensor that an explainer of a network of PyTorch takes; unchanged for any other."""
    network: Any = getattr(getattr(explainer, "explainer", None), "model", None)
    if not hasattr(network, "parameters"):
        return rows
    import torch

    parameter = next(iter(network.parameters()))
    return torch.as_tensor(np.array(rows), dtype=parameter.dtype, device=parameter.device)


@contextlib.contextmanager
def _seeded(rng_key: RngKey | None) -> Iterator[None]:
    """Seed NumPy's global generator by a key, and restore it."""
    if rng_key is None:
        yield
        return
    seed = np.asarray(jax.random.bits(check_rng_key(rng_key), (4,), np.uint32))
    with _global_generator:
        state = np.random.get_state()
        np.random.seed(seed)  # explainers of shap draw from the global generator
        try:
            yield
        finally:
            np.random.set_state(state)


def _arrays(seen: Explanation) -> dict[str, Any]:
    """Return the arrays of an explanation of shap that go into another one."""
    names = ("values", "standard_errors", "interactions")
    return {name: seen.dataset[name].values for name in names if name in seen.dataset}


def _index(seen: Explanation) -> dict[str, Any]:
    """Return the name of the index of the interactions, if there are any."""
    return {name: value for name, value in seen.attrs.items() if name == "interactions"}


def _check_sums(seen: Explanation, predictions: Float[np.ndarray, "p *outputs"], tolerance: float) -> None:
    """Raise ValueError unless base value plus contributions have the shape of the predictions and are near them."""
    advice = (
        "; hand over the function that `shap_explainer` explains (for log-odds of XGBoost `lambda x: model.predict(x, "
        "output_margin=True)`), or None as the predictor"
    )
    sums = seen.predictions.values
    if sums.shape != predictions.shape:
        raise ValueError(
            f"`predictor` must have the outputs that `shap_explainer` explains, got predictions of shape "
            f"{predictions.shape} and explanations of shape {sums.shape}{advice}"
        )
    scale = max(float(np.abs(predictions).max()), float(np.abs(seen.values.values).max()))
    if (gap := _gap(seen, predictions)) > tolerance * scale:
        raise ValueError(
            f"`predictor` must be what `shap_explainer` explains, but base value plus contributions miss its "
            f"predictions by up to {gap:.3g}{advice}; `check_additivity=False` allows it"
        )


def _gap(seen: Explanation, predictions: Float[np.ndarray, "p *outputs"]) -> float:
    return float(np.abs(seen.predictions.values - predictions).max())
