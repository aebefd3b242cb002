r"""Gaussian processes of preferences between items: from matches to the probability that one item beats another."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.data.tables import Schema
from kpp.foundation.validation import count, one_of, warn_if_float32
from kpp.gp import AbstractGPModel, replace_priors
from kpp.gp.toolkit import (
    INDUCING,
    WHITENED,
    ConditionedProcess,
    LatentObservations,
    check_kernel_fits,
    optional_scalar_field,
)
from kpp.inference import Data, Fit
from kpp.inference.toolkit import Sample
from kpp.kernels import RBF, AbstractKernel, GeneralizedPreferential, Preferential, check_non_negative
from kpp.kernels.toolkit import check_positive
from kpp.priors import is_prior
from kpp.priors import sample as draw_priors
from kpp.typing import Leaf, RngKey
from kpp_models.preferences.choose_latent import choose_latent
from kpp_models.preferences.data import (
    check_same_items,
    example_matches,
    place_inducing_pairs,
    plain_inputs,
    read_matches,
    read_pairs,
    refuse_codes,
    resolve_names,
)
from kpp_models.preferences.outcomes import LIKELIHOODS, OutcomeLikelihood, Outcomes
from kpp_models.tables.inducing import check_minibatch
from kpp_models.tables.latent_gp import condition_process
from kpp_models.tables.numpyro_functions import LATENTS, observe_process

Model = TypeVar("Model", bound="AbstractPreferenceModel")


class AbstractPreferenceModel(AbstractGPModel):
    r"""A Gaussian process g on pairs of items, observed through the outcomes of matches.

    .. math:: P(a \text{ beats } b) = s(g(a, b) - t), \qquad P(\text{tie}) = s(g + t) - s(g - t), \qquad
        g \sim GP(0, k_E)

    s is the logistic function or the normal distribution function, and t, the width of a tie, is 0 unless the
    likelihood is ordinal. :math:`k_E` is skew-symmetric in each of its pairs, so that g(b, a) = -g(a, b) for every draw
    of g, and the prior mean must be 0. Subclasses have the fields below and define :math:`k_E`.

    The observed site ``y`` counts wins, ties and losses, with one row per pair (and context), (m, 3). The pointwise log
    likelihood has one term per pair as well: leaving one out means leaving out all matches of the pair.

    `predict` takes pairs (p, 2, d), a tuple of them with contexts (p, c), or `kpp.preferences.Matches`. It gives mean
    and variance of g, ``probability``, the probability that the first item wins plus half the probability of a tie, and
    ``probability_tie``. Teams (`Matches.from_teams`) need a kernel of bags, `kpp.kernels.BagMean`; pairs of new teams
    are `kpp.kernels.toolkit.PaddedBags` of shapes (p, 2, L, d) and (p, 2).

    Args:
        kernel: The kernel, with numbers or priors as leaves.
        likelihood: "logit", "probit", "ordinal" or "ordinal-probit"; see `kpp_models.preferences.outcomes`.
        tie_width: t, at least 0, a number or a prior, for the ordinal likelihoods.
        latent: "laplace" integrates g out by Laplace's approximation, "sample" makes the inference sample its values at
            the pairs of the matches, "inducing" its values at inducing pairs, for thousands of matches and `kpp.SVI`:
            the other values are integrated out in a lower bound on the evidence. By default `kpp.NUTS` samples, so
            that intervals hold what they promise, and every other inference uses Laplace's approximation.
        num_inducing: How many inducing pairs k-means chooses among those of the matches.
        minibatch: The number of pairs in each step of `kpp.SVI`, with inducing pairs; all by default.
        seed: The seed of k-means.

    Raises:
        ValueError: If a name is unknown, or a number is out of range or not allowed with the names.
    """

    #: One match says little about the hyperparameters; docs/how_to/calibration.md has the coverage of intervals.
    needs_draws_of_hyperparameters: ClassVar[bool] = True

    kernel: AbstractKernel
    likelihood: str = eqx.field(static=True, default="logit")
    tie_width: Leaf | None = optional_scalar_field("tie_width", default=None)
    latent: str | None = eqx.field(static=True, default=None)
    num_inducing: int | None = eqx.field(static=True, default=None)
    minibatch: int | None = eqx.field(static=True, default=None)
    seed: int = eqx.field(static=True, default=0)

    @property
    @abstractmethod
    def pair_kernel(self) -> AbstractKernel:
        r""":math:`k_E`, the covariance of g; law: it changes its sign where the items of one pair are exchanged."""

    def __check_init__(self) -> None:
        one_of(self.likelihood, "likelihood", LIKELIHOODS)
        one_of(self.latent, "latent", (None, *LATENTS))
        if LIKELIHOODS[self.likelihood][1] != (self.tie_width is not None):
            raise ValueError(
                "`tie_width` goes with the likelihoods 'ordinal' and 'ordinal-probit', which need one, got "
                f"{self.tie_width} with {self.likelihood!r}"
            )
        if self.tie_width is not None:
            check_non_negative(self.tie_width, "tie_width")
        if (self.latent == "inducing") != (self.num_inducing is not None):
            raise ValueError(
                f"`num_inducing` goes with latent='inducing', which needs it, got {self.num_inducing} with "
                f"latent={self.latent!r}"
            )
        if self.num_inducing is not None:
            count(self.num_inducing, "num_inducing")
        check_minibatch(self.minibatch, self.latent)

    def fit(self, rng_key: RngKey, x: Any, y: Any = None, **options: Any) -> Fit:
        """Fit the model to matches.

        Args:
            rng_key: A JAX random key.
            x: `kpp.preferences.Matches`; or one pair per match, (N, 2, d), possibly in a tuple with contexts (N, c).
            y: None with `Matches`; with pairs 1 if the first item won, 0 if it lost, .5 for a tie.
            **options: ``inference`` and ``num_prior_samples``, as for every model.

        Returns:
            The fit.

        Raises:
            ValueError: If the data are invalid, or hold ties and the likelihood does not allow ties.
        """
        model, options = choose_latent(self, options)
        return super(AbstractPreferenceModel, model).fit(rng_key, x, y, **options)  # `super()` would fit `self`

    def prepare(self: Model, x: Any, y: Any = None) -> tuple[Model, dict[str, Any], Schema]:
        warn_if_float32(type(self).__name__)
        matches = read_matches(x, y, ties=LIKELIHOODS[self.likelihood][1])
        model = eqx.tree_at(lambda tree: tree.kernel, self, resolve_names(self.kernel, matches), is_leaf=is_prior)
        check_kernel_fits(model.pair_kernel, matches.inputs)
        refuse_codes(model.pair_kernel, matches)
        counts = np.stack([matches.wins, matches.ties, matches.losses], axis=1)
        if not is_prior(self.tie_width) and np.any(counts[:, 1]):
            check_positive(self.tie_width, "tie_width", infinity_allowed=False)
        num, inputs = self.num_inducing, plain_inputs(matches)
        if num is not None:
            matches.refuse_teams("latent='inducing'")
        inducing = None if num is None else place_inducing_pairs(inputs, num, self.seed, model.pair_kernel)
        data = {"x": inputs, "trials": matches.counts, "inducing": inducing, "y": jax.device_put(counts)}
        return model, data, matches.schema

    def read_points(self, x: Any, schema: Schema | None) -> Any:
        return read_pairs(x, schema)

    def numpyro_model(self, x: Any, trials: Any, inducing: Any, y: Any = None) -> None:
        """The NumPyro model; `prepare` returns its arguments, and without counts of outcomes (m, 3) these are drawn."""
        model = replace_priors(self, draw_priors)
        kernel, likelihood = model.pair_kernel, OutcomeLikelihood(None, model.outcomes, trials)
        observe_process(x, y, kernel, likelihood, 0.0, model.latent, inducing, model.minibatch)

    def posterior(self, sample: Sample, data: Data) -> ConditionedProcess:
        """Return the posterior of g.

        With drawn latent preferences (``latent="sample"``, or the weighted draws of `kpp.Laplace`) g is conditioned on
        them, and with "inducing" on the latent preferences at the inducing pairs. Otherwise it is Laplace's
        approximation, and the pointwise log likelihood is leave-one-out by the Laplace cavity.
        """
        model = self.at(sample)
        likelihood = model._likelihood(data)
        return condition_process(sample, data["x"], model.pair_kernel, likelihood, inducing=data["inducing"])

    def predictive(self, sample: Sample, data: Data, x: Any, *, covariance: bool = False) -> dict[str, Array]:
        check_same_items(x, data["x"])
        return super().predictive(sample, data, x, covariance=covariance)

    def draw_latent(self, rng_key: RngKey, sample: Sample, data: Data, x: Any) -> Float[Array, " p"]:
        check_same_items(x, data["x"])
        return super().draw_latent(rng_key, sample, data, x)

    def draw_predictive(self, rng_key: RngKey, sample: Sample, data: Data, x: Any) -> Float[Array, " p"]:
        """Draw the outcome of one new match of each pair, jointly: 1 for a win, 0 for a loss, 1/2 for a tie."""
        check_same_items(x, data["x"])
        return super().draw_predictive(rng_key, sample, data, x)

    def score(self, sample: Sample, g: Float[Array, "*p"]) -> Float[Array, "*p"]:
        """Return the expected score of the first item given g: the probability of a win, plus half that of a tie."""
        return self.at(sample).outcomes.score(g)

    def replicate(self, rng_key: RngKey, sample: Sample, data: Data) -> dict[str, Array]:
        latent = self.posterior(sample, data).moments(data["x"])
        law = LatentObservations(self.at(sample)._likelihood(data), latent.mean, latent.variance)
        return {"y": law.sample(rng_key)}

    def site_dims(self, data: Data) -> dict[str, tuple[str, ...]]:
        return {"y": ("instance", "outcome"), WHITENED: ("coordinate",), INDUCING: ("coordinate",)}

    @property
    def outcomes(self) -> Outcomes:
        """The law of the outcome of a match, for a model without priors."""
        return Outcomes(self.likelihood, self.tie_width)

    def _likelihood(self, data: Data) -> OutcomeLikelihood:
        return OutcomeLikelihood(data["y"], self.outcomes, data["trials"])


class PreferenceGP(AbstractPreferenceModel):
    r"""Preferences between items by a Gaussian process with any skew-symmetric kernel on pairs.

    The kernel expresses the assumptions: with `kpp.kernels.Preferential` preferences have a utility, so that items can
    be ranked; `kpp.kernels.GeneralizedPreferential` assumes only skew-symmetry and allows cycles; a sum of the two, or
    the base kernel k + c, combines both; with `kpp.kernels.Contextual` preferences also depend on a context.

    Args:
        kernel: :math:`k_E`, a kernel on pairs, skew-symmetric in each, with numbers or priors as leaves.
        likelihood, tie_width, latent, num_inducing, minibatch, seed: As for `AbstractPreferenceModel`.

    Example:
        >>> kernel = kpp.kernels.Preferential(RBF(1.0))
        >>> same = kpp_models.PreferenceGP(kernel).fit(jax.random.key(0), matches, **mode)
        >>> float(kpp_models.duel(same, items[4:], items[:1])["probability"].mean()) > 0.5
        True

    References:
        Chau, Gonzalez and Sejdinovic, Learning inconsistent preferences with Gaussian processes, 2022, section 3.
    """

    @property
    def pair_kernel(self) -> AbstractKernel:
        return self.kernel

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[PreferenceGP, Array, Array]]:
        pairs, y = example_matches(rng_key)
        kernel = Preferential(RBF(1.0)) + GeneralizedPreferential(RBF(dist.LogNormal(0.0, 0.5)))
        yield cls(kernel, "ordinal", tie_width=dist.HalfNormal(1.0)), pairs, y.at[:3].set(0.5)
        yield cls(GeneralizedPreferential(RBF(1.2)), "probit", latent="sample"), pairs, y


class GPGP(AbstractPreferenceModel):
    r"""The generalized preferential Gaussian process, which does not assume a ranking behind the preferences.

    .. math:: k_E((a, b), (c, d)) = k(a, c)\, k(b, d) - k(a, d)\, k(b, c)

    It is `PreferenceGP` with `kpp.kernels.GeneralizedPreferential` of a kernel on items.

    Args:
        kernel: k, a kernel on items; k + c adds c times the `PGP` of k, a utility.
        likelihood, tie_width, latent, num_inducing, minibatch, seed: As for `AbstractPreferenceModel`.

    Example:
        >>> found = kpp_models.duel(general, items[4:], items[:1])
        >>> float(found["probability"].mean()) > 0.5
        True

    References:
        Chau, Gonzalez and Sejdinovic, Learning inconsistent preferences with Gaussian processes, 2022, equation (5).
    """

    @property
    def pair_kernel(self) -> AbstractKernel:
        return GeneralizedPreferential(self.kernel)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[GPGP, Array, Array]]:
        yield cls(RBF(dist.LogNormal(0.0, 0.5)) + dist.HalfNormal(1.0)), *example_matches(rng_key)


class PGP(AbstractPreferenceModel):
    r"""The preferential Gaussian process, whose preferences are differences of a utility.

    .. math:: k_E((a, b), (c, d)) = k(a, c) + k(b, d) - k(a, d) - k(b, c), \qquad g(a, b) = f(a) - f(b)

    It is `PreferenceGP` with `kpp.kernels.Preferential` of a kernel on items.

    Args:
        kernel: k, the kernel of the utility f, on items.
        likelihood, tie_width, latent, num_inducing, minibatch, seed: As for `AbstractPreferenceModel`.

    Example:
        >>> ranked = kpp_models.PGP(RBF(1.0)).fit(jax.random.key(0), matches, **mode)
        >>> float(kpp_models.duel(ranked, items[4:], items[:1])["probability"].mean()) > 0.5
        True

    References:
        Houlsby, Huszar, Ghahramani and Hernandez-Lobato, Collaborative Gaussian processes for preference learning,
        2012, section 2.
    """

    @property
    def pair_kernel(self) -> AbstractKernel:
        return Preferential(self.kernel)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[PGP, Array, Array]]:
        yield cls(RBF(dist.LogNormal(0.0, 0.5)), latent="inducing", num_inducing=5), *example_matches(rng_key)
