r"""The result of every explainer: how much each feature contributed to each prediction, and how uncertain that is.

An `Explanation` wraps one labeled xarray dataset. With posterior draws everything leads with (chain, draw), so that
the contributions are a posterior of their own; instead of draws, or in addition to them, the covariance of a Gaussian
law of the contributions may be given. Nothing here recomputes an explanation.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from kpp.data.tables import Schema
from kpp.explanations.parts import export as _export
from kpp.explanations.parts import importing as _import
from kpp.explanations.parts import probabilities as _probabilities
from kpp.explanations.parts import uncertainty as _uncertainty
from kpp.explanations.parts.build import SAMPLE_DIMS, additivity_error, build_dataset, check_dataset, select
from kpp.explanations.parts.export import explanation_html
from kpp.explanations.parts.plotting import ExplanationPlots
from kpp.plots.intervals import IntervalKind
from kpp.typing import Numbers, RngKey

if TYPE_CHECKING:
    import pandas as pd


class Explanation:
    r"""Contributions of features to predictions, with the data and names needed to interpret them.

    For an additive explainer, for every instance, draw and output,

    .. math:: \mathrm{base} + \sum_{j=1}^d \phi_j = f(x).

    Build one with `create` and read one from a file with `load`.

    Args:
        dataset: The labeled arrays. ``values`` has dimensions ([chain, draw,] instance, feature[, output]);
            ``base_values`` ([chain, draw,] [instance,] [output]); ``predictions`` ([chain, draw,] instance[, output]);
            ``data`` (instance, feature), categorical features as codes, NaN for a feature that stands for several
            columns; optionally ``variance`` (as ``values``) or ``covariance`` ([chain, draw,] instance,
            [instance_other,] feature, feature_other[, output]) of a Gaussian law, ``interactions`` ([chain, draw,]
            instance, feature, feature_other[, output]), ``standard_errors`` (as ``values``), ``variance_parts``
            (as ``values``, with ``part`` last) and ``effects`` (as ``values``, with ``effect`` last). Its attributes
            can be written as JSON.

    Raises:
        ValueError: If the dataset lacks one of the first four arrays, or numbers other than ``data`` are not finite.

    Example:
        >>> explanation = kpp.explain(fit, x[:3], background=x)
        >>> explanation.probability_greater("x0", "x1", dim="instance").item()
        1.0
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        check_dataset(dataset)
        self.dataset = dataset

    @classmethod
    def create(
        cls,
        values: Numbers,
        base_values: Numbers,
        predictions: Numbers,
        data: Numbers,
        *,
        feature_names: Sequence[str] | None = None,
        schema: Schema | None = None,
        output_names: Sequence[str] | None = None,
        instance_names: Sequence[Any] | None = None,
        draws: bool = False,
        covariance: Numbers | None = None,
        variance: Numbers | None = None,
        interactions: Numbers | None = None,
        standard_errors: Numbers | None = None,
        variance_parts: Mapping[str, Any] | None = None,
        effects: Mapping[str, Any] | None = None,
        groups: Mapping[str, Sequence[str]] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Explanation:
        """Build an explanation of p instances with d features.

        Args:
            values: The contributions, (p, d[, outputs]), led by (chain, draw) if `draws`.
            base_values: The values that the contributions are added to: a number, ([outputs]) or (p[, outputs]) if it
                differs between instances; led by (chain, draw) if `draws`.
            predictions: The predictions that are explained, (p[, outputs]); led by (chain, draw) if `draws`.
            data: The instances, (p, d); NaN for features in `groups` that have no value of their own.
            feature_names: d names; x0, x1, ... by default.
            schema: Instead of `feature_names`: names and levels of categorical features, as `resolve` returns them.
            output_names: One name per output, such as a class; 0, 1, ... by default.
            instance_names: One label per instance; 0, 1, ... by default.
            draws: Whether the arrays lead with (chain, draw).
            covariance: The covariance of a Gaussian law of the contributions, (p, d, d[, outputs]), or
                (p, p, d, d[, outputs]) across instances too; led by (chain, draw) if `draws`.
            variance: The variances alone, of the shape of `values`.
            interactions: How pairs of features contribute together, (p, d, d[, outputs]); led by (chain, draw) if
                `draws`. Record the name of the index in `attrs`.
            standard_errors: The standard errors of `values`, of the same shape, if an explainer has estimated them.
            variance_parts: The parts of the variances, by name: arrays of the shape of `values` that add up to the
                variance, or to the diagonal of the covariance. If neither is given, their sum is the variance.
            effects: The parts of the contributions, by name, such as "direct" and "indirect": arrays of the shape of
                `values` that add up to them.
            groups: The columns of each feature that stands for several.
            attrs: What to record: explainer, value function, exact or estimated, coalitions or nodes used, size of the
                background, seed. Values must be JSON values. Versions are added.

        Returns:
            The explanation.

        Raises:
            ValueError: If shapes do not fit, numbers are not finite, both `covariance` and `variance` are given, or
                `variance_parts` or `effects` do not add up.
        """
        if covariance is not None and variance is not None:
            raise ValueError("give `covariance` or `variance`, not both; the diagonal of a covariance is the variance")
        if schema is not None and feature_names is not None:
            raise ValueError("give `feature_names` or `schema`, not both")
        if schema is not None:
            feature_names = schema.feature_names
        if feature_names is None:
            feature_names = [f"x{j}" for j in range(*np.shape(data)[1:2] or (0,))]  # a wrong shape is refused below
        levels = schema.to_json()["levels"] if schema is not None else {}
        columns = {name: list(members) for name, members in (groups or {}).items()}
        recorded = {name: value for name, value in (("levels", levels), ("groups", columns)) if value}
        dataset = build_dataset(
            values,
            base_values,
            predictions,
            data,
            names={"feature": feature_names, "output": output_names, "instance": instance_names},
            draws=draws,
            optional={
                "covariance": covariance,
                "variance": variance,
                "interactions": interactions,
                "standard_errors": standard_errors,
                "variance_parts": variance_parts,
                "effects": effects,
            },
            attrs={**recorded, **(attrs or {})},
        )
        _uncertainty.check_parts(dataset)
        _uncertainty.check_effects(dataset)
        return cls(dataset)

    @property
    def values(self) -> xr.DataArray:
        """The contributions, ([chain, draw,] instance, feature[, output])."""
        return self.dataset["values"]

    @property
    def base_values(self) -> xr.DataArray:
        """The values that the contributions are added to, ([chain, draw,] [instance,] [output])."""
        return self.dataset["base_values"]

    @property
    def predictions(self) -> xr.DataArray:
        """The predictions that are explained, ([chain, draw,] instance[, output])."""
        return self.dataset["predictions"]

    @property
    def data(self) -> xr.DataArray:
        """The instances, (instance, feature); categories as codes, features that stand for several columns NaN."""
        return self.dataset["data"]

    @property
    def covariance(self) -> xr.DataArray | None:
        """The covariance of the Gaussian law of the contributions, if there is one."""
        return self.dataset.get("covariance")

    @property
    def variance(self) -> xr.DataArray | None:
        """The variances of the Gaussian law, of the shape of `values`, if there is one."""
        return _uncertainty.variance(self.dataset)

    @property
    def variance_parts(self) -> xr.DataArray | None:
        """The parts of the variances, of the shape of `values` with ``part`` as the last dimension; None if unknown."""
        return self.dataset.get("variance_parts")

    @property
    def interactions(self) -> xr.DataArray | None:
        """How pairs of features contribute together, with dims feature and feature_other, if requested."""
        return self.dataset.get("interactions")

    @property
    def effects(self) -> xr.DataArray | None:
        """The direct and indirect parts of the values, of their shape with ``effect`` last, if requested."""
        return self.dataset.get("effects")

    @property
    def standard_errors(self) -> xr.DataArray | None:
        """The standard errors of the values, of the shape of `values`, if they are estimates."""
        return self.dataset.get("standard_errors")

    @property
    def attrs(self) -> dict[str, Any]:
        """How the explanation was made."""
        return self.dataset.attrs

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(str(name) for name in self.dataset.coords["feature"].values)

    @property
    def output_names(self) -> tuple[str, ...] | None:
        """The names of the outputs, or None without an output dimension."""
        if "output" not in self.values.dims:
            return None
        return tuple(str(name) for name in self.dataset.coords["output"].values)

    @property
    def schema(self) -> Schema:
        """Names of the features and levels of categorical ones."""
        return Schema.from_json({"feature_names": self.feature_names, "levels": self.attrs.get("levels", {})})

    @property
    def has_draws(self) -> bool:
        """Whether everything leads with (chain, draw)."""
        return SAMPLE_DIMS[0] in self.values.dims

    def additivity_error(self) -> xr.DataArray:
        r"""Return :math:`|\mathrm{base} + \sum_j \phi_j - f(x)|`, ([chain, draw,] instance[, output])."""
        return additivity_error(self.dataset)

    def mean(self) -> Explanation:
        """Return expected contributions, base values, predictions and so on, without draws or a law around them.

        The standard error of a mean over draws is at most the mean of the standard errors, which is returned as an
        upper bound.
        """
        names = ("values", "base_values", "predictions", "data", "interactions", "standard_errors", "effects")
        kept = self.dataset[[name for name in names if name in self.dataset]]
        return Explanation(kept.mean(SAMPLE_DIMS, keep_attrs=True) if self.has_draws else kept)

    def interval(self, probability: float, kind: IntervalKind = "eti") -> xr.DataArray:
        """Return a credible interval of each contribution.

        The intervals are computed from the draws or from the Gaussian law; if there are both, from the mixture of the
        Gaussians.

        Args:
            probability: The probability of each interval, between 0 and 1.
            kind: "eti", equal-tailed, or "hdi", highest density (the same for a Gaussian).

        Returns:
            The bounds, (instance, feature[, output], bound), bound "lower" and "upper".

        Raises:
            ValueError: If the explanation holds neither draws nor a law, an argument is out of range, or "hdi" is
                requested for a mixture (`sample` from it first).
        """
        return _uncertainty.interval(self.dataset, probability, kind)

    def total_covariance(self) -> xr.DataArray:
        r"""Return the covariance of the contributions over draws and law together.

        .. math:: \mathrm{Cov}[\phi] = \mathrm E_s\,\mathrm{Cov}[\phi \mid s] + \mathrm{Cov}_s\,\mathrm E[\phi \mid s]

        where the first term needs a Gaussian law and the second needs draws s; a missing term is 0.

        Returns:
            (instance, [instance_other,] feature, feature_other[, output]); across instances if the covariance of the
            law is.

        Raises:
            ValueError: If the explanation holds neither draws nor a law, or only variances.
        """
        return _uncertainty.total_covariance(self.dataset)

    def probability_positive(self) -> xr.DataArray:
        """Return the probability that each contribution is positive, (instance, feature[, output]).

        The probability is computed from the draws, the Gaussian law, or the mixture of the draws' laws, without
        sampling.

        Raises:
            ValueError: If the explanation holds neither draws nor a law.
        """
        return _probabilities.probability_positive(self.dataset)

    def probability_of_direction(self) -> xr.DataArray:
        r"""Return the probability of the more probable sign, :math:`\max\{P(\phi > 0), P(\phi < 0)\}`.

        Returns:
            The probabilities, (instance, feature[, output]): 1 for a certain sign, about 1/2 for an unknown sign, 0 for
            a contribution that is certainly zero.

        Raises:
            ValueError: If the explanation holds neither draws nor a law.

        References:
            Makowski, Ben-Shachar, Chen and Luedecke, Indices of effect existence and significance in the Bayesian
            framework, 2019.
        """
        return _probabilities.probability_of_direction(self.dataset)

    def probability_greater(self, a: str, b: str, *, absolute: bool = True, dim: str | None = None) -> xr.DataArray:
        r"""Return the probability that feature a is more important than feature b, :math:`P(|\phi_a| > |\phi_b|)`.

        The probability is computed from the draws, the Gaussian law, or the mixture of the draws' laws, without
        sampling.

        Args:
            a: The name of a feature.
            b: The name of another.
            absolute: Whether absolute contributions are compared; otherwise :math:`P(\phi_a > \phi_b)`.
            dim: None compares within each instance, "instance" the means over all: with `absolute` the importances
                :math:`\frac1p \sum_i |\phi_{ij}|`. Under a law instances are independent unless its covariance has
                ``instance_other``.

        Returns:
            The probabilities, ([instance][, output]). Ties count for neither feature.

        Raises:
            ValueError: If there are neither draws nor a law, a name is unknown, a law has only variances, the draws of
                instances are independent although their contributions are not (``instances_drawn`` of the attributes is
                "independently"), or mean absolute contributions are to be compared under a law (`sample` from it
                first).
        """
        return _probabilities.probability_greater(self.dataset, a, b, absolute, dim)

    def sample(self, rng_key: RngKey, n: int) -> Explanation:
        """Draw contributions from the Gaussian law.

        The base values do not change, and each prediction changes by the sum of the changes of its contributions.

        Args:
            rng_key: A JAX random key.
            n: How many draws; for each draw, if there are some already.

        Returns:
            An explanation with draws, and without a law, interactions or standard errors. Features of an instance are
            drawn jointly; instances too if the covariance holds ``instance_other``, otherwise independently.

        Raises:
            ValueError: If there is no covariance, or it is not positive semi-definite.
        """
        return Explanation(_uncertainty.sample(self.dataset, rng_key, n))

    def isel(self, **indexers: object) -> Explanation:
        """Select by position along ``instance``, ``output``, ``chain`` or ``draw``.

        Args:
            **indexers: An integer, slice, list of integers or booleans for each dimension. An integer keeps its
                dimension with length one, except for ``output``, which is dropped.

        Returns:
            The selected part.

        Raises:
            ValueError: For other dimensions; without all its features an explanation would not add up.
        """
        return Explanation(select(self.dataset, indexers))

    def __getitem__(self, index: object) -> Explanation:
        """Select instances by position; an integer gives an explanation of one instance."""
        return self.isel(instance=index)

    def __len__(self) -> int:
        """Return the number of instances."""
        return self.dataset.sizes["instance"]

    def __iter__(self) -> Any:
        """Iterate over the instances, one explanation each."""
        return (self[index] for index in range(len(self)))

    @property
    def plot(self) -> ExplanationPlots:
        """Plots: ``plot.beeswarm()``, and so ``bar``, ``waterfall``, ``scatter``, ``forest``, ``interactions``."""
        return ExplanationPlots(self.dataset)

    def to_arviz(self) -> Any:
        """Return an ArviZ object: ``InferenceData`` with ArviZ 0.x, ``DataTree`` with 1.x.

        Group ``posterior`` holds ``values``, ``base_values``, ``predictions`` and ``interactions``, with chain = draw =
        1 if there are no draws; ``constant_data`` ``data``, variance and its parts or covariance, standard errors.
        """
        return _export.to_arviz(self.dataset)

    def to_shap(self, *, probability: float = 0.9, kind: IntervalKind = "eti") -> Any:
        """Return a ``shap.Explanation`` of float64 NumPy arrays that shap's plots take.

        Draws are replaced by their mean, and interactions left out, since shap cannot hold them. If the explanation is
        uncertain, ``lower_bounds`` and ``upper_bounds`` are the bounds of `interval`, which shap's waterfall draws;
        ``error_std`` are the standard errors, if there are any. The output axis stays last, so
        ``to_shap()[:, :, "name"]`` is one output. Levels of categories go into ``display_data``.

        Args:
            probability: The probability of the intervals.
            kind: The kind of the intervals, "eti" or "hdi".

        Raises:
            ImportError: If shap is not installed.
        """
        bounds = self.interval(probability, kind) if _uncertainty.is_uncertain(self.dataset) else None
        return _export.to_shap(self.mean().dataset, self.schema, bounds)

    @classmethod
    def from_shap(
        cls,
        explanation: Any,
        *,
        base_values: Numbers | None = None,
        data: Numbers | pd.DataFrame | None = None,
        error_scale: float = 1.0,
    ) -> Explanation:
        r"""Read a ``shap.Explanation``.

        The predictions are base value plus contributions. If shap's values are those of pairs, ``values`` are their
        sums, and ``interactions`` hold the main effects of shap on the diagonal and whole pairs off it, so that
        diagonal and upper triangle add up: of ``shap.TreeExplainer`` the index k-SII of order 2, of
        ``shap.ExactExplainer`` the Shapley-Taylor index. Features of text become categories. Lower and upper bounds are
        not read, since their probability is not known.

        Args:
            explanation: The explanation of p instances with d features, (p, d[, outputs]), or with interactions
                (p, d, d[, outputs]); also of a single instance, (d[, outputs]).
            base_values: The base values, a number, ([outputs]) or (p[, outputs]); by default its own. Some explainers,
                such as ``shap.DeepExplainer``, leave them out and have an ``expected_value``.
            data: The instances, (p, d) or a data frame; by default its own.
            error_scale: The factor by which ``error_std`` becomes a standard error. Those of
                ``shap.PermutationExplainer`` are standard deviations of single passes through the features, so for k
                permutations, which are passed forward and backward, it is :math:`(2k)^{-1/2}`.

        Returns:
            The explanation.

        Raises:
            TypeError: If it is not a ``shap.Explanation``.
            ValueError: If base values or data are missing, or shapes do not fit.
        """
        return cls.create(**_import.read_shap(explanation, base_values, data, error_scale))

    @classmethod
    def from_shapiq(
        cls,
        values: Any,
        data: Numbers | pd.DataFrame,
        *,
        predictions: Numbers | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> Explanation:
        r"""Read shapiq's ``InteractionValues``: contributions of features, and of pairs if the order is 2 or more.

        Values of the indices "SV" and "SII" of single features are Shapley values. Of the indices "k-SII", "STII" and
        "FSII" the values I(S) of all orders add up to the prediction, so each is shared equally by its members,

        .. math:: \phi_j = \sum_{S \ni j} I(S) / |S|,

        and the diagonal of ``interactions`` holds I({j}); for "k-SII" and "STII" these are the Shapley values again.
        Values of other indices are not changed, and they do not add up to the prediction.

        Args:
            values: The ``InteractionValues`` of one instance, or a sequence of those of p instances.
            data: The instances, (p, d), or a data frame; for one instance also (d,).
            predictions: The predictions, (p,); by default base value plus contributions, for indices that add up.
            feature_names: d names; by default those of the data frame, or x0, x1, ...

        Returns:
            The explanation. Its attributes name the index, its order, and whether it is exact.

        Raises:
            TypeError: If the values are not ``InteractionValues``.
            ValueError: If there are no values of single features, `predictions` are needed and missing, or shapes do
                not fit.
        """
        return cls.create(**_import.read_shapiq(values, data, predictions, feature_names))

    def to_dataframe(self, *, probability: float = 0.9, kind: IntervalKind = "eti") -> pd.DataFrame:
        """Return one row for each instance and feature (and output).

        Args:
            probability: The probability of the intervals.
            kind: The kind of the intervals, "eti" or "hdi".

        Returns:
            Columns ``instance``, ``feature``[, ``output``], ``data`` (levels decoded; NaN for a feature that stands for
            several columns), ``value`` (the mean); if the explanation is uncertain, ``std``, ``lower`` and ``upper``;
            if the parts of the variance are known, ``std_<part>``; and if the values are estimated, ``standard_error``.
        """
        return _export.to_dataframe(self.dataset, self.schema, probability, kind)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one netCDF file (HDF5), or to a Zarr store if the path ends in .zarr.

        An existing file or store is replaced only after the new one is complete. An explanation that is backed by Dask
        is computed and written to a Zarr store block by block; for a netCDF file it must fit into memory.

        Raises:
            ImportError: If dask or zarr are needed and not installed.
            FileExistsError: If the path ends in .zarr and is there, but holds anything that kpp did not write.
            OSError: If it cannot be written, such as on a full disk.
        """
        _export.save(self.dataset, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Explanation:
        """Read a file that `save` wrote; the arrays of a Zarr store are backed by Dask and read when they are needed.

        Raises:
            FileNotFoundError: If the file does not exist.
            ImportError: If dask or zarr are needed and not installed.
            ValueError: If the file holds something else, is damaged, or is not complete. A damaged block of a Zarr
                store is noticed when it is read.
        """
        return cls(_export.load(path))

    def __repr__(self) -> str:
        """Summarize the explanation in a few lines."""
        return _export.describe(self.dataset)

    def _repr_html_(self) -> str:
        """Return a summary for notebooks."""
        return explanation_html(self.dataset)
