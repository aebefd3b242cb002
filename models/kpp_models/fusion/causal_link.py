"""One link of a causal chain: how the distribution of an outcome under interventions on a treatment is modeled."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.embeddings import AbstractAdjustment, BackDoor, FrontDoor, NoAdjustment
from kpp.foundation.validation import as_finite_array, as_points, one_of
from kpp.gp import scalar_field
from kpp.gp.toolkit import check_categories, check_kernel_fits, optional_scalar_field
from kpp.kernels import RBF, AbstractKernel, median_heuristic, resolve_features
from kpp.kernels.toolkit import check_kernel_fields, check_positive
from kpp.priors import has_priors, is_prior
from kpp.storage.serialization import data_class
from kpp.typing import Leaf, Numbers
from kpp_models.fusion.data import InterventionData
from kpp_models.fusion.random_functions import OutcomeSpace

_ADJUSTMENTS = ("none", "backdoor", "frontdoor")
_WIDTHS = 1.5  # the default width of the measure, in units of the root mean square of the outcome


def _as_width(value: Leaf | None) -> Leaf | None:
    if value is None or is_prior(value):
        return value
    return as_finite_array(value, "width")


def _as_landmarks(value: Numbers | None) -> Array | None:
    return None if value is None else as_points(value, "landmarks")


@data_class
class CausalLink(eqx.Module):
    r"""The embedding of an outcome's distribution under interventions on a treatment, and its hyperparameters.

    .. math::

        \mu(x) = E[k_y(Y, \cdot) \mid do(X = x)], \qquad k_y(y_i, \cdot) = \mu(x_i, z_i) + \epsilon_i, \qquad
        \mu \sim GP(0, s\, k_\Omega \otimes r), \quad \epsilon_i \sim GP(0, s \lambda\, r)

    Args:
        treatment_kernel: :math:`k_x`, with numbers or priors. None for all links of a chain except the first: their
            treatments are outcomes, whose kernel is already known.
        outcome_kernel: :math:`k_y`, with numbers; None for an RBF with lengthscales by the median heuristic. An RBF for
            Bayesian embeddings.
        noise_variance: :math:`\lambda`, a number or a prior; not multiplied by the number of rows.
        adjustment: "none", "backdoor" or "frontdoor": the use of the third table of the data.
        adjusting_kernel: :math:`k_z`, the kernel of that table, with numbers or priors; None without adjustment.
        adjusting_noise_variance: :math:`\lambda_z`, of the regression of front-door mediators on treatments; None for
            the same as `noise_variance`. The evidence does not depend on it: its posterior is its prior.
        width: :math:`\eta`, of the measure of the nuclear dominant kernel r, in units of y: one number or one per
            feature; None for 1.5 root mean squares of the outcomes. Intervals of effects are too narrow if it is too
            small: functions are assumed to vanish outside it.
        amplitude: s, a number or a prior; it does not change means and multiplies the variances that are due to this
            link. None for the value of highest evidence.
        landmarks: Points (H, dy) for the approximation of inner products by projection; None for exact ones.

    Raises:
        ValueError: If the adjustment is unknown, its kernel is missing or not needed, a number is out of range, or the
            kernel of the outcomes or the width holds a prior.
    """

    treatment_kernel: AbstractKernel | None
    outcome_kernel: AbstractKernel | None
    noise_variance: Leaf = scalar_field("noise_variance")
    adjustment: str = eqx.field(static=True, default="none")
    adjusting_kernel: AbstractKernel | None = None
    adjusting_noise_variance: Leaf | None = optional_scalar_field("adjusting_noise_variance", default=None)
    width: Leaf | None = eqx.field(converter=_as_width, default=None)
    amplitude: Leaf | None = optional_scalar_field("amplitude", default=None)
    landmarks: Array | None = eqx.field(converter=_as_landmarks, default=None)

    def __check_init__(self) -> None:
        check_kernel_fields(self)
        for name in ("noise_variance", "adjusting_noise_variance", "amplitude"):
            check_positive(getattr(self, name), name, infinity_allowed=False)
        one_of(self.adjustment, "adjustment", _ADJUSTMENTS)
        if (self.adjusting_kernel is None) != (self.adjustment == "none"):
            needed = "None" if self.adjustment == "none" else "a kernel"
            raise ValueError(
                f"`adjusting_kernel` must be {needed} for the adjustment {self.adjustment!r}, got "
                f"{self.adjusting_kernel!r}"
            )
        for fixed in ("outcome_kernel", "width"):
            if has_priors(getattr(self, fixed)):
                raise ValueError(
                    f"`{fixed}` must hold numbers, got a prior: the evidence of an embedding does not compare kernels "
                    "of its own space, it is highest where all outcomes look the same or all different"
                )

    def resolve(self, data: InterventionData, others: Sequence[Array], *, first: bool, bayesian: bool) -> CausalLink:
        """Return this link with names of features resolved and defaults filled in from the data.

        `others` are other points of the outcome's space, such as those of the second data set; `first` says whether the
        link is the first of its chain, and `bayesian` whether there is a nuclear dominant kernel. Raises ValueError if
        a kernel does not fit the data, or the data do not have the table that the adjustment needs.
        """
        if (self.treatment_kernel is None) == first:
            raise ValueError(
                "`treatment_kernel` must be given for the first link of a chain, and None for the others, whose "
                "treatments are the outcomes of the one before"
            )
        if (data.adjusting is None) != (self.adjustment == "none"):
            given = "no table" if data.adjusting is None else "a table"
            raise ValueError(f"`adjusting` must go with the adjustment: got {given} for {self.adjustment!r}")
        points = jnp.concatenate([data.outcome, *others])
        outcome_kernel = self.outcome_kernel
        if outcome_kernel is None:
            outcome_kernel = RBF(median_heuristic(points) * np.sqrt(points.shape[1]))
        outcome_kernel = resolve_features(outcome_kernel, data.outcome_schema.feature_names)
        check_kernel_fits(outcome_kernel, data.outcome, "outcome_kernel", "outcome")
        check_categories(outcome_kernel, data.outcome_schema, "outcome_kernel", "outcome")
        changes: dict[str, Any] = {"outcome_kernel": outcome_kernel}
        for name, table, schema in (
            ("treatment_kernel", data.treatment, data.treatment_schema),
            ("adjusting_kernel", data.adjusting, data.adjusting_schema),
        ):
            if getattr(self, name) is not None and table is not None and schema is not None:
                changes[name] = resolve_features(getattr(self, name), schema.feature_names)
                check_kernel_fits(changes[name], table, name, name.removesuffix("_kernel"))
                check_categories(changes[name], schema, name, name.removesuffix("_kernel"))
        if bayesian:
            if not isinstance(changes["outcome_kernel"], RBF):
                raise ValueError(
                    "`outcome_kernel` must be an RBF for a Bayesian embedding, whose inner products have closed forms "
                    f"for this kernel only, got {changes['outcome_kernel']!r}"
                )
            changes["width"] = _default_width(points) if self.width is None else self.width
        if self.landmarks is not None:
            changes["landmarks"] = as_points(self.landmarks, "landmarks", num_features=data.outcome.shape[1])
        return dataclasses.replace(self, **changes)

    @property
    def space(self) -> OutcomeSpace:
        """The space of the outcome, of a resolved link."""
        if self.outcome_kernel is None:
            raise ValueError("`outcome_kernel` is not known yet; `fit` or `prepare` fills it in")
        return OutcomeSpace(self.outcome_kernel, self.width, self.landmarks)

    def adjust(self, adjusting: Float[Array, "N dz"] | None) -> AbstractAdjustment:
        """Return the adjustment for a table, of a link without priors."""
        if self.adjusting_kernel is None or adjusting is None:
            return NoAdjustment()
        if self.adjustment == "backdoor":
            return BackDoor(self.adjusting_kernel, adjusting)
        noise = self.noise_variance if self.adjusting_noise_variance is None else self.adjusting_noise_variance
        return FrontDoor(self.adjusting_kernel, adjusting, noise / adjusting.shape[0])  # type: ignore[operator]


def _default_width(points: Array) -> Array:
    size = jnp.sqrt(jnp.mean(jnp.square(points), axis=0))
    return _WIDTHS * jnp.where(size > 0, size, 1.0)
