r"""Gaussian processes of preferences between items: matches in, the probability that one item beats another out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp import linalg
from kpp.functions import RKHSFunction
from kpp.gp import (
    LatentPredictive,
    check_kernel_fits,
    draw_gaussian,
    laplace_loo_log_density,
    laplace_posterior,
    latent_predictive,
    optional_scalar_field,
    prior_factor,
    refuse_below,
    replace_priors,
)
from kpp.inference import AbstractModel, Fit
from kpp.kernels import RBF, AbstractKernel, GeneralizedPreferential, Preferential
from kpp.posteriors import GPPosterior
from kpp.priors import is_prior, substitute
from kpp.priors import sample as draw_priors
from kpp.tables import Schema
from kpp.typing import Leaf, RngKey
from kpp.validation import warn_if_float32
from kpp_models.preferences.data import (
    check_same_items,
    place_inducing_pairs,
    read_matches,
    read_pairs,
    resolve_names,
)
from kpp_models.preferences.outcomes import (
    LIKELIHOODS,
    LaplaceOutcomes,
    LatentOutcomes,
    OutcomeLikelihood,
    Outcomes,
)

__all__ = ["GPGP", "PGP", "AbstractPreferenceModel", "PreferenceGP"]

Model = TypeVar("Model", bound="AbstractPreferenceModel")
Data = Mapping[str, Any]
Sample = Mapping[str, Array]

LATENTS = ("laplace", "sample", "inducing")

#: The sites of whitened latent preferences: at the pairs of the matches, and at inducing pairs.
WHITENED, INDUCING = "latent_whitened", "inducing_whitened"


class _Conditioned(NamedTuple):
    """A posterior given one draw: its pairs, coefficients there, and the map that whitens sections at the pairs."""

    points: Any
    coefficients: Float[Array, " q"]
    whiten: Callable[[Array], Array]

    def at(self, kernel: AbstractKernel, x: Any, *, covariance: bool = False) -> LatentPredictive:
        """Return mean, variance and, if wanted, covariance of g at pairs."""
        origin = jnp.zeros((), self.coefficients.dtype)
        return latent_predictive(kernel, self.points, x, origin, self.coefficients, self.whiten, covariance=covariance)


class AbstractPreferenceModel(AbstractModel):
    r"""A Gaussian process g on pairs of items, seen through the outcomes of matches.

    .. math:: P(a \text{ beats } b) = s(g(a, b) - t), \qquad P(\text{tie}) = s(g + t) - s(g - t), \qquad
        g \sim GP(0, k_E)

    s is the logistic function or the normal distribution function, and t, the width of a tie, is 0 unless the
    likelihood is ordinal. :math:`k_E` is skew-symmetric in each of its pairs, so that g(b, a) = -g(a, b) for every
    function there is, and the prior mean can only be 0. Subclasses have the fields below and say what :math:`k_E` is.

    The observed site ``y`` counts wins, ties and losses, one row a pair (and context), (m, 3). The pointwise log
    likelihood has one term a pair as well: to leave one out is to leave out all matches of the pair.

    `predict` takes pairs (p, 2, d), a tuple of them with contexts (p, c), or `kpp.preferences.Matches`. It gives mean
    and variance of g, ``probability``, that the first item wins plus half of that of a tie, and ``probability_tie``.

    Args:
        kernel: The kernel, with numbers or priors for leaves.
        likelihood: "logit", "probit", "ordinal" or "ordinal-probit"; see `kpp_models.preferences.outcomes`.
        tie_width: t, at least 0, a number or a prior, for the ordinal likelihoods.
        latent: "laplace" integrates g out by Laplace's approximation, "sample" leaves its values at the pairs of the
            matches to the inference, "inducing" those at inducing pairs, for thousands of matches and `kpp.SVI`: the
            others are integrated out in a lower bound on the evidence.
        num_inducing: How many inducing pairs k-means chooses among those of the matches.
        minibatch: How many pairs each step of `kpp.SVI` sees, with inducing pairs; all by default.
        seed: Of k-means.

    Raises:
        ValueError: If a name is unknown, or a number is out of range or does not go with the names.
    """

    kernel: AbstractKernel
    likelihood: str = eqx.field(static=True, default="logit")
    tie_width: Leaf | None = optional_scalar_field("tie_width", default=None)
    latent: str = eqx.field(static=True, default="laplace")
    num_inducing: int | None = eqx.field(static=True, default=None)
    minibatch: int | None = eqx.field(static=True, default=None)
    seed: int = eqx.field(static=True, default=0)

    @property
    @abstractmethod
    def pair_kernel(self) -> AbstractKernel:
        r""":math:`k_E`, the covariance of g; law: it changes its sign where the items of one pair are exchanged."""

    def __check_init__(self) -> None:
        """Refuse unknown names, and numbers that do not go with them."""
        for name, value, known in (
            ("likelihood", self.likelihood, tuple(LIKELIHOODS)),
            ("latent", self.latent, LATENTS),
        ):
            if value not in known:
                raise ValueError(f"`{name}` must be one of {known}, got {value!r}")
        if LIKELIHOODS[self.likelihood][1] != (self.tie_width is not None):
            raise ValueError(
                "`tie_width` goes with the likelihoods 'ordinal' and 'ordinal-probit', which need one, got "
                f"{self.tie_width} with {self.likelihood!r}"
            )
        if self.tie_width is not None:
            refuse_below(self.tie_width, "tie_width", zero_allowed=True)
        if (self.latent == "inducing") != (self.num_inducing is not None):
            raise ValueError(
                f"`num_inducing` goes with latent='inducing', which needs it, got {self.num_inducing} with "
                f"latent={self.latent!r}"
            )
        if self.minibatch is not None and (self.latent != "inducing" or self.minibatch < 1):
            raise ValueError(
                f"`minibatch` must be at least 1 and goes with latent='inducing', got {self.minibatch} with "
                f"latent={self.latent!r}"
            )

    def fit(self, rng_key: RngKey, x: Any, y: Any = None, **options: Any) -> Fit:
        """Fit the model to matches.

        Args:
            rng_key: A JAX random key.
            x: `kpp.preferences.Matches`; or one pair a match, (N, 2, d), perhaps in a tuple with contexts (N, c).
            y: Left out with `Matches`; with pairs 1 where the first item won, 0 where it lost, .5 for a tie.
            **options: ``inference`` and ``num_prior_samples``, as for every model.

        Returns:
            The fit.

        Raises:
            ValueError: If the data are unfit, or hold ties that the likelihood has no place for.
        """
        return super().fit(rng_key, x, y, **options)

    def prepare(self: Model, x: Any, y: Any = None) -> tuple[Model, dict[str, Any], Schema]:
        """Read the matches; see `fit` and `AbstractModel.prepare`."""
        warn_if_float32(type(self).__name__)
        matches = read_matches(x, y, ties=LIKELIHOODS[self.likelihood][1])
        model = eqx.tree_at(lambda tree: tree.kernel, self, resolve_names(self.kernel, matches), is_leaf=is_prior)
        check_kernel_fits(model.pair_kernel, matches.inputs)
        counts = jnp.stack([matches.wins, matches.ties, matches.losses], axis=1)
        if not is_prior(self.tie_width) and self.tie_width is not None:
            refuse_below(self.tie_width, "tie_width", zero_allowed=not bool(jnp.any(matches.ties > 0)))
        num, inputs = self.num_inducing, matches.inputs
        inducing = None if num is None else place_inducing_pairs(inputs, num, self.seed)
        data = {"x": inputs, "trials": matches.counts, "inducing": inducing, "y": counts}
        return model, data, matches.schema

    def read_points(self, x: Any, schema: Schema | None) -> Any:
        """Read pairs to predict at; see `AbstractModel.read_points`."""
        return read_pairs(x, schema)

    def numpyro_model(self, x: Any, trials: Any, inducing: Any, y: Any = None) -> None:
        """Be an ordinary NumPyro model; its arguments are what `prepare` returns.

        Args:
            x: The pairs, (m, 2, d), or a tuple of them with contexts (m, c).
            trials: The number of matches of each, (m,).
            inducing: The inducing pairs, or None.
            y: Wins, ties and losses, (m, 3), or None to draw them.
        """
        model = replace_priors(self, draw_priors)
        outcomes, kernel = model._outcomes, model.pair_kernel
        count = jnp.shape(trials)[0]
        if model.latent == "laplace":
            numpyro.sample("y", LaplaceOutcomes(outcomes, trials, kernel.gram(x)), obs=y)
            return
        if model.latent == "sample":
            white = numpyro.sample(WHITENED, dist.Normal(0.0, 1.0).expand([count]).to_event(1))
            g = prior_factor(kernel.gram(x)) @ white
            with numpyro.plate("instance", count):
                numpyro.sample("y", LatentOutcomes(outcomes, trials, g), obs=y)
            return
        size = jax.tree.leaves(inducing)[0].shape[0]
        white = numpyro.sample(INDUCING, dist.Normal(0.0, 1.0).expand([size]).to_event(1))
        batch = None if model.minibatch is None else min(model.minibatch, count)
        with numpyro.plate("instance", count, subsample_size=batch) as rows:
            some = jax.tree.map(lambda leaf: leaf[rows], x)
            found = model._given_inducing(inducing, white).at(kernel, some)
            law = LatentOutcomes(outcomes, trials[rows], found.mean, found.variance)
            numpyro.sample("y", law, obs=None if y is None else y[rows])

    def log_likelihood(self, sample: Sample, data: Data) -> dict[str, Array]:
        """Return the log probability of the matches of every pair, by ``y``; see the class.

        With ``latent="laplace"`` it is leave-one-out, by the Laplace cavity; with "sample" it is given the latent
        preferences; with "inducing" given those at the inducing pairs.
        """
        model = self._at(sample)
        likelihood = OutcomeLikelihood(data["y"], model._outcomes)
        if model.latent == "laplace":
            return {"y": laplace_loo_log_density(likelihood, model.pair_kernel.gram(data["x"]), jnp.zeros(()))}
        if model.latent == "sample":
            return {"y": likelihood.log_density(prior_factor(model.pair_kernel.gram(data["x"])) @ sample[WHITENED])}
        found = model._latent(sample, data, data["x"])
        return {"y": likelihood.marginal_log_density(found.mean, found.variance)}

    def predictive(self, sample: Sample, data: Data, x: Any, *, covariance: bool = False) -> dict[str, Array]:
        """Return the moments of g and the probabilities of outcomes at p pairs; see `AbstractModel.predictive`."""
        check_same_items(x, data["x"])
        model = self._at(sample)
        found = model._latent(sample, data, x, covariance=covariance)
        result = {"mean": found.mean, "latent_variance": found.variance}
        result |= model._outcomes.predict(found.mean, found.variance)
        return result | ({"latent_covariance": found.covariance} if found.covariance is not None else {})

    def draw_predictive(self, rng_key: RngKey, sample: Sample, data: Data, x: Any) -> Float[Array, " p"]:
        """Draw the outcome of one new match of each pair, g jointly: 1 for a win, 0 for a loss, 1/2 for a tie."""
        latent_key, outcome_key = jax.random.split(rng_key)
        model = self._at(sample)
        g = model.draw_latent(latent_key, sample, data, x)
        counts = model._outcomes.draw(outcome_key, g, jnp.ones_like(g))
        return counts[:, 0] + 0.5 * counts[:, 1]

    def draw_latent(self, rng_key: RngKey, sample: Sample, data: Data, x: Any) -> Float[Array, " p"]:
        """Draw g at p pairs, jointly."""
        check_same_items(x, data["x"])
        model = self._at(sample)
        found = model._latent(sample, data, x, covariance=True)
        assert found.covariance is not None  # asked for above
        return draw_gaussian(rng_key, found.mean, found.covariance, jnp.mean(model.pair_kernel.diagonal(x)))

    def score(self, sample: Sample, g: Float[Array, "*p"]) -> Float[Array, "*p"]:
        """Return what a match brings the first item given g: the probability of a win plus half of that of a tie."""
        return self._at(sample)._outcomes.score(g)

    def replicate(self, rng_key: RngKey, sample: Sample, data: Data) -> dict[str, Array]:
        """Draw the counts of as many matches as there were, each pair by itself; see `AbstractModel.replicate`."""
        model = self._at(sample)
        found = model._latent(sample, data, data["x"])
        law = LatentOutcomes(model._outcomes, data["trials"], found.mean, found.variance)
        return {"y": law.sample(rng_key)}

    def function_draw(self, sample: Sample, data: Data) -> RKHSFunction:
        """Return the posterior mean of g, a function of pairs (g itself, where it is sampled)."""
        model = self._at(sample)
        found = model._condition(sample, data)
        return RKHSFunction(model.pair_kernel, found.points, found.coefficients)

    def posterior_draw(self, sample: Sample, data: Data) -> GPPosterior:
        """Return the posterior of g; see `kpp_models.GPClassification.posterior_draw`."""
        model = self._at(sample)
        found = model._condition(sample, data)
        function = RKHSFunction(model.pair_kernel, found.points, found.coefficients)
        return GPPosterior(function, found.whiten(jnp.eye(function.num_points, dtype=found.coefficients.dtype)).T)

    def site_dims(self, data: Data) -> dict[str, tuple[str, ...]]:
        """Name the axes of the counts and of the whitened latent preferences."""
        return {"y": ("instance", "outcome"), WHITENED: ("instance",), INDUCING: ("inducing_pair",)}

    @property
    def _outcomes(self) -> Outcomes:
        return Outcomes(self.likelihood, self.tie_width)

    def _at(self: Model, sample: Sample) -> Model:
        """Return this model with the values of one draw in place of its priors."""
        return replace_priors(self, lambda name, value: substitute(name, value, sample))

    def _latent(self, sample: Sample, data: Data, x: Any, *, covariance: bool = False) -> LatentPredictive:
        """Return the posterior of g at pairs; there are no priors left."""
        return self._condition(sample, data).at(self.pair_kernel, x, covariance=covariance)

    def _condition(self, sample: Sample, data: Data) -> _Conditioned:
        if self.latent == "inducing":
            return self._given_inducing(data["inducing"], sample[INDUCING])
        gram = self.pair_kernel.gram(data["x"])
        if self.latent == "sample":
            return _given_values(data["x"], gram, sample[WHITENED])
        likelihood = OutcomeLikelihood(data["y"], self._outcomes)
        posterior = laplace_posterior(likelihood, gram, jnp.zeros((), gram.dtype))
        return _Conditioned(data["x"], posterior.coefficients, posterior.whiten)

    def _given_inducing(self, inducing: Any, white: Array) -> _Conditioned:
        return _given_values(inducing, self.pair_kernel.gram(inducing), white)


class PreferenceGP(AbstractPreferenceModel):
    r"""Preferences between items by a Gaussian process with any skew-symmetric kernel on pairs.

    The kernel decides what is believed: `kpp.kernels.Preferential` that there is a utility, so that items can be
    ranked, `kpp.kernels.GeneralizedPreferential` nothing but skew-symmetry, cycles included; a sum, or the base kernel
    k + c, both; `kpp.kernels.Contextual` that preferences depend on a context, too.

    Args:
        kernel: :math:`k_E`, a kernel on pairs, skew-symmetric in each, with numbers or priors for leaves.
        likelihood: As for `AbstractPreferenceModel`, like everything below.
        tie_width: t.
        latent: "laplace", "sample" or "inducing".
        num_inducing: How many inducing pairs.
        minibatch: How many pairs a step sees.
        seed: Of k-means.

    Raises:
        ValueError: As for `AbstractPreferenceModel`.

    References:
        Chau, Gonzalez and Sejdinovic, Learning inconsistent preferences with Gaussian processes, 2022, section 3.
    """

    @property
    def pair_kernel(self) -> AbstractKernel:
        """The kernel itself."""
        return self.kernel

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[PreferenceGP, Array, Array]]:
        """Yield models with pairs and outcomes for the conformance suite."""
        pairs, y = _example_matches(rng_key)
        kernel = Preferential(RBF(1.0)) + GeneralizedPreferential(RBF(dist.LogNormal(0.0, 0.5)))
        yield cls(kernel, "ordinal", tie_width=dist.HalfNormal(1.0)), pairs, y.at[:3].set(0.5)
        yield cls(GeneralizedPreferential(RBF(1.2)), "probit", latent="sample"), pairs, y


class GPGP(AbstractPreferenceModel):
    r"""The generalised preferential Gaussian process, which needs no ranking behind the preferences.

    .. math:: k_E((a, b), (c, d)) = k(a, c)\, k(b, d) - k(a, d)\, k(b, c)

    It is `PreferenceGP` with `kpp.kernels.GeneralizedPreferential` of a kernel on items.

    Args:
        kernel: k, a kernel on items; k + c adds c times the `PGP` of k, a utility.
        likelihood: As for `AbstractPreferenceModel`, like everything below.
        tie_width: t.
        latent: "laplace", "sample" or "inducing".
        num_inducing: How many inducing pairs.
        minibatch: How many pairs a step sees.
        seed: Of k-means.

    Raises:
        ValueError: As for `AbstractPreferenceModel`.

    References:
        Chau, Gonzalez and Sejdinovic, Learning inconsistent preferences with Gaussian processes, 2022, equation (5).
    """

    @property
    def pair_kernel(self) -> AbstractKernel:
        """`GeneralizedPreferential` of the kernel on items."""
        return GeneralizedPreferential(self.kernel)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[GPGP, Array, Array]]:
        """Yield a model with pairs and outcomes for the conformance suite."""
        yield cls(RBF(dist.LogNormal(0.0, 0.5)) + dist.HalfNormal(1.0)), *_example_matches(rng_key)


class PGP(AbstractPreferenceModel):
    r"""The preferential Gaussian process, whose preferences are differences of a utility.

    .. math:: k_E((a, b), (c, d)) = k(a, c) + k(b, d) - k(a, d) - k(b, c), \qquad g(a, b) = f(a) - f(b)

    It is `PreferenceGP` with `kpp.kernels.Preferential` of a kernel on items.

    Args:
        kernel: k, a kernel on items, that of the utility f.
        likelihood: As for `AbstractPreferenceModel`, like everything below.
        tie_width: t.
        latent: "laplace", "sample" or "inducing".
        num_inducing: How many inducing pairs.
        minibatch: How many pairs a step sees.
        seed: Of k-means.

    Raises:
        ValueError: As for `AbstractPreferenceModel`.

    References:
        Houlsby, Huszar, Ghahramani and Hernandez-Lobato, Collaborative Gaussian processes for preference learning,
        2012, section 2.
    """

    @property
    def pair_kernel(self) -> AbstractKernel:
        """`Preferential` of the kernel on items."""
        return Preferential(self.kernel)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[PGP, Array, Array]]:
        """Yield a model with pairs and outcomes for the conformance suite."""
        yield cls(RBF(dist.LogNormal(0.0, 0.5)), latent="inducing", num_inducing=5), *_example_matches(rng_key)


def _given_values(points: Any, gram: Array, white: Array) -> _Conditioned:
    """Condition on latent preferences L w at some pairs."""
    factor = prior_factor(gram)
    coefficients = linalg.cho_solve(factor, factor @ white)
    return _Conditioned(points, coefficients, lambda cross: linalg.solve_lower(factor, cross))


def _example_matches(rng_key: RngKey) -> tuple[Float[Array, "12 2 2"], Float[Array, " 12"]]:
    """Return 12 pairs of items with two features, and who won."""
    first, second = jax.random.split(rng_key)
    pairs = jax.random.uniform(first, (12, 2, 2), minval=-2.0, maxval=2.0)
    return pairs, jax.random.bernoulli(second, 0.5, (12,)).astype(pairs.dtype)
