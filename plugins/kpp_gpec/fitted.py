"""A fitted GPEC: explanations with their uncertainty at any point."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from kpp.data.tables import Schema
from kpp.explanations import Explanation, Inputs
from kpp.explanations.toolkit import group_points
from kpp.foundation.validation import check_same_rows
from kpp.games import as_players
from kpp_gpec.background import Observations, observe
from kpp_gpec.boundary.sampler import BoundarySample
from kpp_gpec.fitted_output import FittedOutput, load, save
from kpp_gpec.process.explanation_process import ProcessLaw
from kpp_gpec.process.hyperparameters import SelectedHyperparameters
from kpp_gpec.process.multitask import condition


class FittedGPEC(eqx.Module):
    """Processes of the explanations of a model, one for each output, as `GPEC.fit` returns them.

    Args:
        name: "gpec" or "naive-gp".
        x: The points whose explanations are known, (N, d).
        location: What is subtracted from points, (d,).
        scale: The divisor of the centered points, (d,).
        outputs: The fitted outputs.
        base_values: The base values, one per output.
        schema: The columns of points.
        feature_names: The names of the explained features: the columns, or groups of them.
        groups: The columns of each feature that stands for several.
        output_names: The names of the outputs, None if the model has a single one.
        output_positions: The positions of these outputs in the model.
        record: The record of how the explanations were made, for their attributes.
        predictor: The model, or None, as after `load`: files do not hold it.
    """

    name: str = eqx.field(static=True)
    x: Float[np.ndarray, "N d"]
    location: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]
    outputs: tuple[FittedOutput, ...]
    base_values: Float[np.ndarray, " O"]
    schema: Schema = eqx.field(static=True)
    feature_names: tuple[str, ...] = eqx.field(static=True)
    groups: Mapping[str, Sequence[str]] = eqx.field(static=True)
    output_names: tuple[str, ...] | None = eqx.field(static=True)
    output_positions: tuple[int, ...] = eqx.field(static=True)
    record: Mapping[str, Any] = eqx.field(static=True)
    predictor: Any = None

    @property
    def boundary(self) -> BoundarySample | None:
        """The boundary sample of the only output, in the features' own units.

        Raises:
            ValueError: If there are several outputs; each of `outputs` has its own.
        """
        if len(self.outputs) > 1:
            raise ValueError(f"there are {len(self.outputs)} outputs, each with a boundary: ask `outputs[i].boundary`")
        return self.outputs[0].boundary

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The hyperparameters and how they were chosen, as JSON values; by output if there are several."""
        described = [_describe(output.selected) for output in self.outputs]
        return described[0] if self.output_names is None else dict(zip(self.output_names, described, strict=True))

    def law(self, x: ArrayLike) -> ProcessLaw:
        """Predict the explanations of points without the model.

        Args:
            x: p points, (p, d), or a data frame.

        Returns:
            Means and variances, (p, D, outputs); covariances (p, D, D, outputs) if features are correlated.
        """
        points = self._standardized(self.schema.read(x))
        laws = [output.process.predict(points) for output in self.outputs]
        return jax.tree.map(lambda *arrays: np.stack(arrays, axis=-1), *laws)

    def explain(self, x: ArrayLike) -> Explanation:
        r"""Predict the explanations of points, with the posterior variance.

        The variance has two parts. "boundary" is the variance that would remain if all explanations were known without
        error: it is large if the decision boundary is complex or no explained point is near. "approximation" is the
        additional variance from the error of the explainer, :math:`V(U) - V(0)`.

        Args:
            x: p points, (p, d), or a data frame with the columns of the first.

        Returns:
            The explanation. Its predictions are those of the model, or without a model (after `load`) base value plus
            contributions, as its attribute ``predictions`` says.

        Raises:
            ValueError: If `x` does not have the columns of the background.
        """
        points = self.schema.read(x)
        law = self.law(points)
        predictions, source = self._predictions(points), "predictor"
        if predictions is None:
            predictions, source = self.base_values + law.mean.sum(axis=1), "base value plus contributions"
        arrays = law.mean, self.base_values, predictions
        return self._explanation(points, arrays, self._uncertainty(law, 0.0), {"predictions": source})

    def assess(self, explanation: Explanation, x: ArrayLike | None = None) -> Explanation:
        """Return explanations of the explainer itself with the uncertainty of this process.

        Args:
            explanation: Explanations of p points, with these features and outputs. Their own variance, if they have
                one, is added to the part "approximation".
            x: The points, (p, d); by default the data of the explanation.

        Returns:
            The same values, base values and predictions, with the variance of `explain`.

        Raises:
            ValueError: If features or outputs differ, or the number of points differs, or points are missing.
        """
        points, seen = self._read(explanation, x)
        mean = explanation.mean()
        base = mean.base_values.values if "output" in mean.values.dims else mean.base_values.values[..., None]
        predictions = mean.predictions.values.reshape(len(points), -1)
        record = {"predictions": "explanation", "values": "explanation"}
        uncertainty = self._uncertainty(self.law(points), seen.noise)
        return self._explanation(points, (seen.values, base, predictions), uncertainty, record)

    def add(self, explanation: Explanation, x: ArrayLike | None = None) -> FittedGPEC:
        """Condition the processes on further explanations; hyperparameters and boundaries do not change.

        Args:
            explanation: Explanations of further points, with these features and outputs.
            x: The points; by default the data of the explanation.

        Raises:
            ValueError: As for `assess`.
        """
        points, seen = self._read(explanation, x)
        z = self._standardized(points)
        outputs = []
        for number, output in enumerate(self.outputs):
            old = output.process
            values = np.concatenate([old.values, seen.values[..., number]])
            noise = np.concatenate([old.noise, seen.noise[..., number]])
            together = np.concatenate([old.points, z])
            process = condition(old.kernel, together, values, noise, old.variance, old.correlations, old.num_inducing)
            outputs.append(dataclasses.replace(output, process=process))
        return dataclasses.replace(self, x=np.concatenate([self.x, points]), outputs=tuple(outputs))

    def with_hyperparameters(self, **changes: Any) -> FittedGPEC:
        """Return the same explanations and boundaries with other hyperparameters, in every output.

        Args:
            **changes: Any of `decay`, `concentration`, `lengthscale` (None for no RBF factor) and `variance`.

        Returns:
            The processes, conditioned again.

        Raises:
            TypeError: If another name is given.
        """
        unknown = sorted(set(changes) - {"decay", "concentration", "lengthscale", "variance"})
        if unknown:
            raise TypeError(f"unknown hyperparameters {unknown}")
        if "variance" in changes:
            changes["variance"] = np.broadcast_to(np.asarray(changes["variance"], float), (len(self.feature_names),))
        report = {"method": "given", "objective": None, "at_bounds": ()}
        outputs = tuple(output.with_hyperparameters(**changes, **report) for output in self.outputs)
        return dataclasses.replace(self, outputs=outputs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all except the model to one netCDF file, which replaces an existing file when it is complete."""
        arrays = {name: getattr(self, name) for name in ("x", "location", "scale", "base_values")}
        names = ("name", "feature_names", "groups", "output_names", "output_positions", "record")
        save(path, arrays, {name: getattr(self, name) for name in names}, self.schema, self.outputs)

    @classmethod
    def load(cls, path: str | os.PathLike[str], predictor: object = None) -> FittedGPEC:
        """Read a file that `save` wrote.

        Args:
            path: The file.
            predictor: The model, for the predictions of explanations.

        Raises:
            FileNotFoundError: If the file does not exist.
            ValueError: If the file holds something else.
        """
        return cls(**load(path), predictor=predictor)

    def _standardized(self, x: np.ndarray) -> np.ndarray:
        return (np.asarray(x) - self.location) / self.scale

    def _read(self, explanation: Explanation, x: ArrayLike | None) -> tuple[np.ndarray, Observations]:
        """Return the points and values of further explanations."""
        if explanation.feature_names != self.feature_names:
            wanted, found = list(self.feature_names), list(explanation.feature_names)
            raise ValueError(f"`explanation` must have the features {wanted}, got {found}")
        noise = self.record["given_noise"]
        seen = observe([explanation], "explainer" if noise is None else noise, self.record["min_noise_variance"])
        if seen.values.shape[2] != len(self.outputs):
            raise ValueError(
                f"`explanation` must have {len(self.outputs)} outputs, got {seen.values.shape[2]}; choose with `isel`"
            )
        if x is None and self.groups:
            raise ValueError("`x` must be given where features stand for several columns, got None")
        points = self.schema.read(explanation.data.values if x is None else x)
        check_same_rows(len(points), len(seen.values), "x", "explanation")
        return points, seen

    def _uncertainty(self, law: ProcessLaw, own: float | np.ndarray) -> dict[str, Any]:
        """Return the covariance, if any, and the parts of the variance, with the explainer's own variance added.

        Without a boundary the first part comes from the distance to other points.
        """
        name = "distance" if self.name == "naive-gp" else "boundary"
        last = slice(None) if self.output_names is not None else 0
        parts = {name: law.noiseless_variance, "approximation": law.variance - law.noiseless_variance + own}
        uncertainty: dict[str, Any] = {"variance_parts": {part: array[..., last] for part, array in parts.items()}}
        if law.covariance is not None:
            own = np.broadcast_to(own, law.mean.shape)[:, :, None] * np.eye(law.mean.shape[1])[None, :, :, None]
            uncertainty["covariance"] = (law.covariance + own)[..., last]
        return uncertainty

    def _predictions(self, points: np.ndarray) -> np.ndarray | None:
        """Return the model's predictions, (p, outputs), averaged over draws; None without the model."""
        if self.predictor is None:
            return None
        inputs = Inputs.read(self.predictor, points, "callable")
        values = inputs.predictions.mean(axis=tuple(range(inputs.row_axis)))
        return values.reshape(len(points), -1)[:, list(self.output_positions)]

    def _explanation(
        self,
        points: np.ndarray,
        arrays: tuple[np.ndarray, np.ndarray, np.ndarray],
        uncertainty: Mapping[str, Any],
        record: Mapping[str, Any],
    ) -> Explanation:
        """Build an explanation from values, base values and predictions, whose last axis is that of the outputs."""
        players = as_players(dict(self.groups) or None, points.shape[1], self.schema.feature_names)
        shown = group_points(points, players, self.schema, [self.x])
        last = slice(None) if self.output_names is not None else 0
        values, base_values, predictions = (array[..., last] for array in arrays)
        return Explanation.create(
            values,
            base_values,
            predictions,
            shown.data,
            schema=shown.schema,
            groups=shown.groups,
            output_names=self.output_names,
            **uncertainty,
            attrs={**self.record, "hyperparameters": self.hyperparameters, **record},
        )


def _describe(selected: SelectedHyperparameters) -> dict[str, Any]:
    """Return hyperparameters as JSON values."""
    plain = {name: np.asarray(value).tolist() for name, value in selected._asdict().items() if value is not None}
    return {**dict.fromkeys(selected._fields), **plain}
