"""The contract of a mechanism, the law of a variable given its direct causes, and the default, a linear one."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.foundation.modules import AbstractModule
from kpp.foundation.validation import check_type
from kpp.gp import AbstractPointwiseLikelihood, GaussianLikelihood, scalar_field
from kpp.gp.toolkit import LatentObservations, as_scalar
from kpp.priors import is_prior
from kpp.typing import Leaf

Mechanism = TypeVar("Mechanism", bound="AbstractMechanism")


class Causes(NamedTuple):
    """The direct causes of a variable, for n rows: its parents, and hidden common causes of it and another variable."""

    parents: dict[str, Array]
    hidden: dict[str, Array]
    num_rows: int

    @property
    def points(self) -> Float[Array, "n d"]:
        """The parents, then the hidden causes, as columns."""
        return jnp.stack([*self.parents.values(), *self.hidden.values()], axis=1)


class Training(NamedTuple):
    """Rows whose variables are known, from which a mechanism knows its function."""

    inputs: Causes
    values: Float[Array, " m"]


class AbstractMechanism(AbstractModule):
    r"""The law of a variable given its direct causes, :math:`p(y \mid \mathrm{pa}(y), u)`.

    The leaves of a mechanism may be priors. `StructuralModel` draws them by `kpp.sample`, as sites that are named after
    the variable: ``y.coefficients.x``, ``y.kernel.lengthscale``.
    """

    #: Whether the law at new rows depends on the rows that were seen, apart from the parameters.
    needs_training: ClassVar[bool] = False

    #: The law of the variable given its latent value, to which hidden causes add their loadings times their values.
    likelihood: eqx.AbstractVar[AbstractPointwiseLikelihood]
    loadings: eqx.AbstractVar[Any]

    @abc.abstractmethod
    def resolve(
        self: Mechanism, node: str, parents: tuple[str, ...], loadings: Mapping[str, dist.Distribution]
    ) -> Mechanism:
        """Return the mechanism for a variable of a graph.

        Args:
            node: The variable.
            parents: Its parents, in the order of the graph.
            loadings: For each hidden common cause that it shares with another variable the default prior of its
                loading.

        Returns:
            The mechanism with one leaf for each parent and hidden cause where it has such leaves.

        Raises:
            ValueError: If the mechanism does not fit the parents.
        """

    @abc.abstractmethod
    def law(self, inputs: Causes, training: Training | None = None) -> dist.Distribution:
        """Return the law of the variable at n rows, for a mechanism whose priors have been drawn.

        Law: rows are independent with the batch shape (n,), or dependent with the event shape (n,). Without `training`
        it is the prior law.

        Args:
            inputs: The direct causes.
            training: Rows that are known, if `needs_training`; they are not among those of `inputs`.

        Returns:
            The distribution.
        """

    @abc.abstractmethod
    def latent(self, inputs: Causes, white: Float[Array, " n"], training: Training | None = None) -> Float[Array, " n"]:
        """Draw the latent values of n rows, for one function that all rows share.

        Law: the values at the first rows depend on the first numbers of `white` only, so that further rows extend a
        draw.

        Args:
            inputs: The direct causes.
            white: Draws from the standard normal law.
            training: As for `law`.

        Returns:
            The latent values, with the part of the hidden causes.
        """


def likelihood_field() -> Any:
    """Return an Equinox field that holds a pointwise likelihood, by default Gaussian with a prior for its noise."""

    def check(value: AbstractPointwiseLikelihood) -> AbstractPointwiseLikelihood:
        check_type(value, "likelihood", ("AbstractPointwiseLikelihood",))
        return value

    return eqx.field(converter=check, default_factory=lambda: GaussianLikelihood(noise_variance=dist.HalfNormal(1.0)))


def scalars_field(name: str, **options: Any) -> Any:
    """Return an Equinox field that holds one number or prior for all names, or one for each name, or None.

    Numbers are checked; `leaf_by_name` checks what holds values for names.
    """

    def convert(value: Any) -> Any:
        return value if value is None or isinstance(value, Mapping) or is_prior(value) else as_scalar(value, name)

    return eqx.field(converter=convert, **options)


def leaf_by_name(value: Any, names: tuple[str, ...], argument: str) -> dict[str, Leaf]:
    """Return one number or prior for each name, from one for all names, or a mapping from each name.

    Raises ValueError, which names the argument, if a name is missing or unknown, or a value is not one finite number or
    a prior for one.
    """
    given = dict(value) if isinstance(value, Mapping) else dict.fromkeys(names, value)
    if set(given) != set(names):
        raise ValueError(f"`{argument}` must hold one value for each of {list(names)}, got values for {list(given)}")
    return {name: as_scalar(given[name], f"{argument}[{name!r}]") for name in names}


class LinearMechanism(AbstractMechanism):
    r"""A generalized linear model of a variable given its parents and hidden common causes.

    .. math:: y_i \sim p(y_i \mid f_i), \qquad f_i = a + \sum_j b_j\, x_{ij} + \sum_k l_k\, u_{ik}

    The default priors are weakly informative for columns that are standardized; otherwise give your own.

    Args:
        coefficients: b, in units of f per unit of each parent: a number or a prior for all parents, or a mapping from
            each parent to its own. The sites are ``y.coefficients.x``.
        intercept: a, in units of f; a number or a prior.
        likelihood: p, whose parameters may be priors, as in ``GaussianLikelihood(noise_variance=prior)``,
            ``BernoulliLikelihood()`` for labels 0 and 1, or ``PoissonLikelihood()`` for counts.
        loadings: l, as `coefficients`, for each hidden common cause, which is standard normal. By default they are
            standard normal, and half-normal for the variable that comes first in the graph, because the sign of a
            hidden cause is arbitrary. The sites are ``y.loadings.x <-> y``.

    Raises:
        ValueError: If a value is not a finite number or a prior for one.
    """

    coefficients: Any = scalars_field("coefficients", default_factory=lambda: dist.Normal(0.0, 1.0))
    intercept: Leaf = scalar_field("intercept", default_factory=lambda: dist.Normal(0.0, 1.0))
    likelihood: AbstractPointwiseLikelihood = likelihood_field()
    loadings: Any = scalars_field("loadings", default=None)

    def resolve(
        self, node: str, parents: tuple[str, ...], loadings: Mapping[str, dist.Distribution]
    ) -> "LinearMechanism":
        return dataclasses.replace(
            self,
            coefficients=leaf_by_name(self.coefficients, parents, "coefficients"),
            loadings=leaf_by_name(loadings if self.loadings is None else self.loadings, tuple(loadings), "loadings"),
        )

    def law(self, inputs: Causes, training: Training | None = None) -> dist.Distribution:
        """Return the law of independent rows; see `AbstractMechanism.law`."""
        return LatentObservations(self.likelihood, self.latent(inputs))

    def latent(
        self, inputs: Causes, white: Float[Array, " n"] | None = None, training: Training | None = None
    ) -> Float[Array, " n"]:
        """Return the linear predictor, which is known; see `AbstractMechanism.latent`."""
        terms = [self.coefficients[name] * values for name, values in inputs.parents.items()]
        terms += [self.loadings[name] * values for name, values in inputs.hidden.items()]
        return sum(terms, jnp.broadcast_to(self.intercept, (inputs.num_rows,)))
