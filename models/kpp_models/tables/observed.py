r"""Observations of linear functionals of a regression function, beside those of its values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax.numpy as jnp
import numpyro
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp import linalg
from kpp.foundation.validation import as_finite_array, check_type
from kpp.functionals import AbstractFunctional, Combination, Values
from kpp.gp import (
    BernoulliLikelihood,
    ConditionedGP,
    GaussianLikelihood,
    GaussianProcessMarginal,
    scalar_field,
)
from kpp.gp.toolkit import LatentObservations, condition_functional, prior_law
from kpp.kernels import AbstractKernel, check_non_negative
from kpp.kernels.toolkit import check_positive
from kpp.storage.serialization import data_class
from kpp.typing import Leaf, Numbers

SIGNS = "signs_whitened"


def _as_values(value: Numbers) -> Array:
    return as_finite_array(value, "values")


@data_class
class Observed(eqx.Module):
    r"""Observations of q numbers that are linear in a function, such as derivatives, totals or differences.

    .. math:: z = L f + \epsilon, \qquad \epsilon_i \sim N(0, \sigma_z^2)

    With ``only_signs`` the signs of z are observed, :math:`P(z_i > 0 \mid f) = \Phi((L f)_i / \sigma_z)`. Positive
    signs of derivatives at many points make a function increase.

    Args:
        functional: L. Its points have the columns of x, in their order, as ``fit.schema.read(table)`` returns them.
        values: z, (q,), in units of L f; or signs, 1 and -1. One number is used for all.
        noise_variance: :math:`\sigma_z^2`, in squared units of L f, a number or a prior. With 0 the numbers, such as
            totals, are kept exactly. Signs need a positive variance; the smaller it is, the rarer are wrong signs.
        only_signs: Whether `values` are signs.

    Raises:
        TypeError: If `functional` is not a functional.
        ValueError: If there is not one value for each number, one is not finite, or not a sign; or a variance is
            negative.

    References:
        Riihimäki and Vehtari, Gaussian processes with monotonicity information, 2010.
    """

    functional: AbstractFunctional
    values: Float[Array, " q"] = eqx.field(converter=_as_values)
    noise_variance: Leaf = scalar_field("noise_variance", default=0.0)
    only_signs: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        check_type(self.functional, "functional", ("AbstractFunctional",))
        shape = (self.functional.num_values,)
        if self.values.shape != shape:
            raise ValueError(
                f"`values` must hold one value for each number of `functional`, shape {shape}, got shape "
                f"{self.values.shape}"
            )
        (check_positive if self.only_signs else check_non_negative)(self.noise_variance, "noise_variance")
        if self.only_signs and not bool(jnp.all(jnp.abs(self.values) == 1)):
            raise ValueError(f"`values` must hold signs, 1 or -1, with `only_signs`, got {self.values}")


def as_observed(value: Observed | Iterable[Observed]) -> tuple[Observed, ...]:
    """Convert the field `observed` of a model: one or several `Observed`."""
    observed = tuple(value) if isinstance(value, Iterable) else (value,)
    for one in observed:
        check_type(one, "observed", ("Observed",))
    return observed


class Regression(Protocol):
    """A regression model with observed functionals, with numbers in place of priors."""

    @property
    def kernel(self) -> AbstractKernel: ...
    @property
    def noise_variance(self) -> Leaf: ...
    @property
    def mean(self) -> Any: ...
    @property
    def observed(self) -> tuple[Observed, ...]: ...


def observe_functionals(x: Array, y: Array | None, model: Regression, row_variances: Array | None) -> None:
    r"""Observe rows and functionals of a Gaussian process, in a NumPyro model.

    The site ``y`` is given the functionals, :math:`p(y \mid z)`, and ``observed`` has the density of z alone. For
    signs, the whitened :math:`L f` given all numbers is sampled, site ``signs_whitened``.
    """
    kernel, mean = model.kernel, model.mean
    noise = model.noise_variance if row_variances is None else model.noise_variance + row_variances
    given, signs = _condition_on_numbers(model, x.dtype)
    rows = Values(x)
    center, gram = prior_law(kernel, rows, mean) if given is None else given.law_of(rows)
    y = numpyro.sample("y", GaussianProcessMarginal(center, gram, noise), obs=y)
    if given is not None:
        numbers = given.likelihood
        law = GaussianProcessMarginal(*prior_law(kernel, given.points, mean), numbers.variances)
        numpyro.sample("observed", law, obs=numbers.y)
    if signs is not None:
        process = condition_functional(kernel, rows, GaussianLikelihood(y, 0.0, noise), mean, given=given)
        white = numpyro.sample(SIGNS, dist.Normal(0.0, 1.0).expand(signs.values.shape).to_event(1))
        latent, _ = _latent(process, signs.functional, white)
        with numpyro.plate("sign", len(signs.values)):
            law = LatentObservations(BernoulliLikelihood(link="probit"), latent / jnp.sqrt(signs.variances))
            numpyro.sample("observed_signs", law, obs=(signs.values + 1) / 2)


def condition_on_observed(
    x: Array, likelihood: GaussianLikelihood, model: Regression, white: Array | None
) -> ConditionedGP:
    """Condition a Gaussian process on rows and functionals, given whitened values of those of which signs are known."""
    kernel, mean, rows = model.kernel, model.mean, Values(x)
    given, signs = _condition_on_numbers(model, x.dtype)
    if signs is not None:
        process = condition_functional(kernel, rows, likelihood, mean, given=given)
        values = GaussianLikelihood(*_latent(process, signs.functional, white))
        given = condition_functional(kernel, signs.functional, values, mean, given=given)
    return condition_functional(kernel, rows, likelihood, mean, given=given)


class _Stacked(NamedTuple):
    """Several observations as one."""

    functional: Combination
    values: Float[Array, " q"]
    variances: Float[Array, " q"]


def _stack(observed: Sequence[Observed], dtype: Any) -> _Stacked | None:
    if not observed:
        return None
    variances = [jnp.broadcast_to(one.noise_variance, one.values.shape) for one in observed]
    values = jnp.concatenate([one.values for one in observed]).astype(dtype)
    return _Stacked(Combination(tuple(one.functional for one in observed)), values, jnp.concatenate(variances))


def _condition_on_numbers(model: Regression, dtype: Any) -> tuple[ConditionedGP | None, _Stacked | None]:
    """Condition on the observed numbers, if there are some; return the process, and the observed signs."""
    numbers, signs = (
        _stack([one for one in model.observed if one.only_signs == only], dtype) for only in (False, True)
    )
    if numbers is None:
        return None, signs
    likelihood = GaussianLikelihood(numbers.values, 0.0, numbers.variances)
    return condition_functional(model.kernel, numbers.functional, likelihood, model.mean), signs


def _latent(process: ConditionedGP, functional: AbstractFunctional, white: Array | None) -> tuple[Array, Array]:
    """Return the numbers of a process for whitened ones, and the variance of the nugget that they contain."""
    mean, covariance = process.law_of(functional)
    scale = jnp.mean(jnp.diagonal(functional.prior_covariance(process.kernel)))
    nugget = linalg.max_relative_jitter(covariance.dtype) * scale
    return mean + linalg.cholesky(linalg.add_diagonal(covariance, nugget)) @ white, nugget
