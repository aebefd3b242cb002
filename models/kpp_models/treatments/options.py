"""The options of an effect of a treatment: where, in which rows, under which policies, and with how many draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from jaxtyping import Bool, Float, Shaped
from scipy.special import ndtr

from kpp.foundation.validation import one_of
from kpp.foundation.wording import named
from kpp.runtime.memory import check_memory
from kpp.typing import RngKey
from kpp_models.treatments.averaging.averages import row_weights
from kpp_models.treatments.treatment import TreatmentColumn

NUM_DRAWS = 1000
#: The name of the policy that changes nothing.
OBSERVED = "observed"
# A distribution of treatments is a Gauss-Hermite rule in probits: exact for moments up to 15 of a normal distribution.
_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(8)


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


@dataclasses.dataclass(frozen=True)
class Policies:
    """The treatments of n rows under q policies: values in l layers, and their chances under each policy."""

    names: list[str]
    values: Float[np.ndarray, "l n"]  # numbers or codes
    chances: Float[np.ndarray, "q l n"]

    @classmethod
    def read(cls, policies: Mapping[str, Any], column: TreatmentColumn, table: pd.DataFrame) -> Policies:
        """Read policies by name for the rows of a table, or raise ValueError; see `kpp_models.causal_effect`."""
        parts = [_read_policy(policy, f"`policies[{name!r}]`", column, table) for name, policy in policies.items()]
        stops = np.cumsum([len(values) for values, _ in parts])
        chances = np.zeros((len(parts), stops[-1], len(table)))
        for number, (_, own) in enumerate(parts):
            chances[number, stops[number] - len(own) : stops[number]] = own
        what = f"the effect of policies with {stops[-1]} treatments of each of {len(table)} rows"
        check_memory(3 * 8 * (int(stops[-1]) * len(table)) ** 2, what, "give fewer policies or rows")
        return cls([*policies], np.concatenate([values for values, _ in parts]), chances)

    def expect(self, numbers: Shaped[np.ndarray, "l n"]) -> Float[np.ndarray, "q n"]:
        """Return what numbers of the treatments are expected to be for each row, under each policy."""
        return np.einsum("qln,ln->qn", self.chances, numbers)


def _read_policy(
    policy: Any, argument: str, column: TreatmentColumn, table: pd.DataFrame
) -> tuple[Float[np.ndarray, "l n"], Float[np.ndarray, "l n"]]:
    """Return the treatments of a policy in l layers, and their chances."""
    is_function = callable(policy) and not isinstance(policy, dist.Distribution)  # a distribution is callable, too
    size, columns = len(table), [str(name) for name in table.columns]
    try:
        given = policy(table.copy()) if is_function else policy
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{argument} could not be computed from the treatment and the adjustment set, {named(columns)}: {error!r}; "
            "to read further causes of the outcome, fit a kpp_models.GPRegression of them all and pass the fit"
        ) from error
    if isinstance(given, dist.Distribution):
        if not column.is_number or given.shape() not in ((), (size,)):
            raise ValueError(
                f"{argument} may be a distribution of shape () or ({size},) for a treatment of numbers, got the shape "
                f"{given.shape()} for {column.name!r}; the levels of a treatment have chances: {{level: chance, ...}}"
            )
        values = _codes(np.stack([np.broadcast_to(given.icdf(u), size) for u in ndtr(_NODES)]), argument, column)
        chances = np.tile(_SHARES[:, None] / _SHARES.sum(), size)
    elif isinstance(given, Mapping | pd.DataFrame):
        values = _codes(np.asarray(list(given), dtype=object)[:, None], argument, column)
        chances = np.stack([_of_rows(given[level], argument, size).astype(float) for level in given])
        if not ((chances >= 0).all() and np.allclose(chances.sum(axis=0), 1.0)):  # refuses NaN, too
            raise ValueError(f"{argument} must give chances of at least 0 that sum to 1 in each row")
    else:
        values, chances = _codes(_of_rows(given, argument, size), argument, column)[None], np.ones((1, size))
    return np.broadcast_to(values, chances.shape), chances


def _of_rows(given: Any, argument: str, size: int) -> np.ndarray:
    """Return something for each row, possibly the same for all; raise ValueError for another shape."""
    if np.shape(given) not in ((), (size,)):
        raise ValueError(
            f"{argument} must give one treatment or one for each row, shape ({size},), got shape {np.shape(given)}"
        )
    return np.broadcast_to(np.asarray(given), size)


def _codes(values: np.ndarray, argument: str, column: TreatmentColumn) -> np.ndarray:
    """Return treatments as numbers or codes; raise ValueError if they are not finite or not known."""
    flat, known = values.ravel().tolist(), column.levels or np.unique(column.treatment)
    if column.levels:
        codes = np.array([column.levels.index(value) if value in column.levels else np.nan for value in flat], float)
    else:
        codes = np.asarray(pd.to_numeric(flat, errors="coerce"), dtype=float)
    if not column.levels and not column.is_number:
        nearest = known[abs(codes[:, None] - known).argmin(axis=1)]  # standardized rows have rounding errors
        codes = np.where(np.isclose(codes, nearest), nearest, np.nan)
    strange = sorted({str(value) for value, code in zip(flat, codes, strict=True) if not np.isfinite(code)})
    if strange:
        needed = "finite numbers" if column.is_number else f"values that rows have, {list(known)},"
        raise ValueError(f"{argument} must give {needed} as treatments, got {named(strange)}")
    return codes.reshape(values.shape)
