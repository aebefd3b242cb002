"""The options of an effect of a treatment: where, in which rows, and with how many draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Bool

from kpp.foundation.validation import one_of
from kpp.typing import RngKey
from kpp_models.treatments.averaging.averages import row_weights
from kpp_models.treatments.policies import Policies
from kpp_models.treatments.treatment import TreatmentColumn

NUM_DRAWS = 1000
#: The name of the policy that changes nothing.
OBSERVED = "observed"


@dataclasses.dataclass(frozen=True)
class EffectOptions:
    """Options of an effect, as for `kpp_models.causal_effect`."""

    at: Sequence[Any] | None = None  # the values of the treatment; None for the defaults
    rows: Bool[np.ndarray, " n"] | str | None = None  # of a subgroup, or "treated" or "untreated"; None for all
    num_draws: int | None = None  # the least number; None for the default of the method
    bootstrap: bool = True  # whether the law of the covariates is uncertain
    derivative: bool = False
    policies: Mapping[str, Any] | None = None  # by name: which treatment each row gets
    by_row: bool = False  # whether to add the effect in each row
    num_inducing: int | None = None  # None for the exact posterior, or a default number for many rows
    doubly_robust: bool = False  # whether weighted residuals correct the averages

    def read_policies(self, column: TreatmentColumn, table: pd.DataFrame) -> Policies:
        """Return the policies, after "observed", for rows with the treatment and the adjustment set."""
        policies = dict(self.policies or {})
        if OBSERVED in policies or self.at is not None or self.by_row or self.doubly_robust:
            raise ValueError(
                f"`policies` must be without {OBSERVED!r}, `at`, `by_row` and `doubly_robust`; a value of the "
                "treatment is a policy, too"
            )
        return Policies.read({OBSERVED: lambda rows: rows[column.name], **policies}, column, table)

    def check_by_inducing(self, treatment: str | tuple[str, ...]) -> None:
        """Raise ValueError if what is asked for needs an exact posterior."""
        further = self.derivative or self.by_row or self.doubly_robust or self.policies is not None
        if further or not isinstance(treatment, str):
            raise ValueError(
                "`derivative`, `by_row`, `doubly_robust`, `policies` and several treatments need an exact posterior, "
                "which has no inducing points and at most 3,000 rows"
            )

    def subgroup(self, column: TreatmentColumn) -> Bool[np.ndarray, " n"]:
        """Return the mask of the subgroup, (n,), or raise ValueError if `rows` says not which rows it has."""
        treatment = column.treatment
        if isinstance(self.rows, str):
            values, group = np.unique(treatment), one_of(self.rows, "rows", ("treated", "untreated"))
            if len(values) != 2 or column.levels or treatment.ndim > 1:
                raise ValueError(
                    f"`rows` must be a mask where the treatment is not a column of two numbers or of booleans, got "
                    f"{group!r} for {column.name!r} with {len(column.levels) or len(values)} values"
                )
            return treatment == values[int(group == "treated")]
        mask = np.ones(len(treatment), dtype=bool) if self.rows is None else np.asarray(self.rows)
        if mask.dtype != bool or mask.shape != treatment.shape[:1] or not mask.any():
            raise ValueError(
                f"`rows` must be booleans of shape {treatment.shape[:1]}, at least one of them True, got dtype "
                f"{mask.dtype} and shape {mask.shape}"
            )
        return mask

    def weights(self, rng_key: RngKey, shape: tuple[int, ...], mask: Bool[np.ndarray, " n"]) -> jax.Array:
        """Return weights of rows; see `row_weights`."""
        return row_weights(rng_key, shape, jnp.asarray(mask), self.bootstrap)
