r"""The bases of the models of :math:`E[T \mid do(X = x)]` from several data sets."""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp import linalg
from kpp.data.tables import Schema
from kpp.foundation.validation import positive, warn_if_float32
from kpp.functions import RKHSFunction
from kpp.gp import GaussianProcessMarginal, replace_priors, scalar_field
from kpp.gp.toolkit import draw_gaussian, gaussian_loo_log_density, prior_factor
from kpp.inference import AbstractInference, AbstractModel, Data, Fit
from kpp.inference.toolkit import Sample, pseudo_evidence
from kpp.kernels import RBF, AbstractKernel, check_non_negative
from kpp.kernels.toolkit import check_positive
from kpp.priors import sample as draw_priors
from kpp.priors import substitute
from kpp.typing import Leaf, Numbers, RngKey
from kpp_models.fusion.causal_link import CausalLink
from kpp_models.fusion.data import InterventionData, as_chain, read_mediators
from kpp_models.fusion.embedding_evidence import SharedCovariance, fitted_amplitude
from kpp_models.fusion.random_functions import Effect, OutcomeSpace, RandomEmbedding, RandomFunction, inner_product

Model = TypeVar("Model", bound="AbstractChainModel")
EffectModel = TypeVar("EffectModel", bound="AbstractEffectModel")

_MIN_PIVOT = 1e-10  # relative to the mean diagonal: below it a kernel matrix of outcomes gets a nugget


def _as_links(links: CausalLink | Sequence[CausalLink]) -> tuple[CausalLink, ...]:
    """Return links as a tuple; a field converter."""
    found = (links,) if isinstance(links, CausalLink) or not np.iterable(links) else tuple(links)
    for link in found:
        if not isinstance(link, CausalLink):
            raise TypeError(f"`links` must hold a CausalLink for each data set, got {type(link).__name__}")
    return found


def example_data(rng_key: RngKey) -> tuple[Array, Array, Array, Array]:
    """Return treatments, outcomes and variables for adjustment, each (10, 1), and targets (10,)."""
    keys = jax.random.split(rng_key, 3)
    z, noise = jax.random.normal(keys[0], (10, 1)), 0.1 * jax.random.normal(keys[1], (10, 2))
    x = z + jax.random.normal(keys[2], (10, 1))
    y = jnp.sin(x) - z + noise[:, :1]
    return x, y, z, y[:, 0] ** 2 + noise[:, 1]


class AbstractChainModel(AbstractModel):
    """The fields of every model of a chain of data sets, and the reading of its data; see `AbstractEffectModel`."""

    links: tuple[CausalLink, ...] = eqx.field(converter=_as_links)
    noise_variance: Leaf = scalar_field("noise_variance")
    amplitude: Leaf = scalar_field("amplitude", default=1.0)
    mean: Leaf = scalar_field("mean", default=0.0)

    def __check_init__(self) -> None:
        check_positive(self.noise_variance, "noise_variance", infinity_allowed=False)
        check_non_negative(self.amplitude, "amplitude")
        if not self.links:
            raise ValueError("`links` must hold at least one CausalLink, got none")

    def _read(
        self: Model, x: object, y: Numbers, mediators: Numbers | None, *, bayesian: bool
    ) -> tuple[Model, dict[str, Any], tuple[InterventionData, ...]]:
        """Return the model with resolved links, the data that all models of chains have, and the chain."""
        warn_if_float32(type(self).__name__)
        chain = as_chain(x)
        if len(chain) != len(self.links):
            raise ValueError(f"`x` must hold one data set for each of the {len(self.links)} links, got {len(chain)}")
        places, targets = read_mediators(chain[-1], mediators, y)
        others = [*(part.treatment for part in chain[1:]), places]
        links = tuple(
            link.resolve(part, [other], first=number == 0, bayesian=bayesian)
            for number, (link, part, other) in enumerate(zip(self.links, chain, others, strict=True))
        )
        names = ("treatment", "outcome", "adjusting")
        tables = tuple({name: getattr(part, name) for name in names} for part in chain)
        return dataclasses.replace(self, links=links), {"links": tables, "mediators": places, "y": targets}, chain

    def _at(self: Model, sample: Sample) -> Model:
        """Return this model with the values of one draw in place of its priors."""
        return replace_priors(self, lambda name, value: substitute(name, value, sample))

    def _treatment_kernel(self, number: int, level: int = 0) -> AbstractKernel:
        own = self.links[number].treatment_kernel
        return self.links[number - 1].space.level_kernel(level) if own is None else own


class AbstractEffectModel(AbstractChainModel):
    r"""The effect of a treatment on a target that was never observed together with it.

    .. math:: g(x) = E[T \mid do(X = x)] = m + \langle f, \mu(x) \rangle, \qquad t_j = m + f(\tilde y_j) + \epsilon_j

    There are two or more data sets. Each data set of D1 links a treatment x to an outcome y, which may be the treatment
    of the next one; the last data set holds targets t at outcomes :math:`\tilde y`. :math:`\mu(x)` is the embedding of
    the outcome's distribution under the intervention, f the function from outcome to target. The final classes differ
    in which of the two is a Gaussian process and which is known to be the ridge regression; everything else follows
    from `kpp_models.fusion.random_functions`.

    Hyperparameters are learned by the evidence of all data sets: a site ``y`` for the targets, and
    ``links.0.embedding`` and so on for the embeddings, observed in the coordinates of
    `kpp_models.fusion.embedding_evidence.SharedCovariance`.

    Equal outcomes are merged exactly.

    Args:
        links: The model of each data set of the chain: a `CausalLink`, or one per data set.
        noise_variance: :math:`\lambda_f`, the variance of the targets' noise, in their squared units: a number or a
            prior.
        amplitude: a, which multiplies the kernel of f: a number or a prior.
        mean: m, in units of t: a number or a prior.

    Raises:
        ValueError: If a number is not a scalar or out of range.
    """

    #: Whether the embeddings are Gaussian processes (otherwise ridge regressions), and whether f is one.
    bayesian_embedding: eqx.AbstractClassVar[bool]
    uncertain_function: eqx.AbstractClassVar[bool]

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple["AbstractEffectModel", InterventionData, Array]]:
        x, y, z, t = example_data(rng_key)
        prior = dist.LogNormal(0.0, 0.5)
        backdoor = CausalLink(
            RBF(prior.expand([1])), RBF(1.0), prior, adjustment="backdoor", adjusting_kernel=RBF(prior), width=3.0
        )
        yield cls((backdoor,), dist.HalfNormal(1.0)), InterventionData.create(x, y, z), t
        frontdoor = CausalLink(RBF(1.0), None, 0.2, adjustment="frontdoor", adjusting_kernel=RBF(1.5), amplitude=prior)
        yield cls((frontdoor,), prior, prior, dist.Normal(0.0, 1.0)), InterventionData.create(x, t[:, None], y), t

    def prepare(
        self: EffectModel, x: object, y: Numbers, *, mediators: Numbers | None = None
    ) -> tuple[EffectModel, dict[str, Any], Schema]:
        r"""Read the data.

        Args:
            x: D1, `kpp_models.InterventionData`, or a mapping of the tables that its `create` takes; a sequence of them
                for a chain, one per link.
            y: The targets t, (M,).
            mediators: :math:`\tilde y`, (M, dy), the outcomes at which the targets were observed; None if they were
                observed in the rows of the last data set of `x`.

        Returns:
            The model with defaults filled in and names of features resolved, the data, and the schema of the treatment.

        Raises:
            ValueError: If the data are invalid; the message names the argument.
        """
        model, data, chain = self._read(x, y, mediators, bayesian=self.bayesian_embedding)
        parts = zip(model.links, chain, strict=True)
        data["embeddings"] = tuple(self._observe(link.space, part.outcome) for link, part in parts)
        return model, data, chain[0].treatment_schema

    def select_lengthscale(
        self,
        rng_key: RngKey,
        x: object,
        y: Numbers,
        *,
        mediators: Numbers | None = None,
        factors: Sequence[float] = (1.0, 0.5, 0.3, 0.2),
        inference: AbstractInference | None = None,
    ) -> Fit:
        r"""Return the fit of the highest pseudo-evidence among several lengthscales of the last outcome's kernel.

        .. math:: \log \frac{1}{S} \sum_s \prod_i p(t_i \mid t_{-i}, \theta_s)

        The evidence of an embedding cannot compare kernels of its own space, but the targets can: this kernel is that
        of f, too. If f varies faster than the median heuristic allows, effects are far too certain.

        Args:
            rng_key: A JAX random key.
            x: D1, as for `prepare`.
            y: The targets, (M,).
            mediators: As for `prepare`.
            factors: The lengthscales to try, in units of the model's own; positive.
            inference: As for `fit`.

        Returns:
            The fit; its model has the lengthscale.

        Raises:
            ValueError: If `factors` is empty or not positive, or the kernel is not an RBF.

        References:
            Geisser and Eddy, A predictive approach to model selection, 1979.
        """
        kernel = self.prepare(x, y, mediators=mediators)[0].links[-1].outcome_kernel
        if not len(positive(factors, "factors")) or not isinstance(kernel, RBF):
            raise ValueError(f"`factors` must be numbers, and `outcome_kernel` an RBF; got {factors} and {kernel}")
        options: dict[str, Any] = {"mediators": mediators, "inference": inference, "num_prior_samples": 0}
        fits = []
        for factor in factors:
            scaled = dataclasses.replace(kernel, lengthscale=kernel.lengthscale * factor)
            links = (*self.links[:-1], dataclasses.replace(self.links[-1], outcome_kernel=scaled))
            model = dataclasses.replace(self, links=links)
            fits.append(model.fit(rng_key, x, y, **options))
        return max(fits, key=pseudo_evidence)

    def numpyro_model(
        self,
        links: Sequence[Data],
        mediators: Float[Array, "M dy"],
        embeddings: Sequence[Data] | None = None,
        y: Float[Array, " M"] | None = None,
    ) -> None:
        """The NumPyro model; its arguments are the data that `prepare` returns.

        Outcomes themselves are not drawn by this model: without the coordinates of the observed embeddings, (N, U) for
        U distinct outcomes, their evidence is left out. Without targets these are drawn.
        """
        model = replace_priors(self, draw_priors)
        gram = model._target_gram(mediators)
        numpyro.sample("y", GaussianProcessMarginal(model.mean, gram, model.noise_variance), obs=y)
        for number, observed in enumerate(() if embeddings is None else embeddings):
            coordinates = observed["coordinates"]
            covariance = model._covariance(number, links[number])
            law = SharedCovariance(covariance, coordinates.shape[1], model.links[number].amplitude)
            numpyro.sample(f"links.{number}.embedding", law, obs=coordinates)

    def log_likelihood(self, sample: Sample, data: Data) -> dict[str, Array]:
        model = self._at(sample)
        gram = model._target_gram(data["mediators"])
        covariance = linalg.add_diagonal(gram, model.noise_variance)
        return {"y": gaussian_loo_log_density(data["y"] - model.mean, covariance)}

    def predictive(
        self, sample: Sample, data: Data, x: Float[Array, "p *d"], *, covariance: bool = False
    ) -> dict[str, Array]:
        """Return the moments of the effect of p treatments, or of policies (p, N, d); see `AbstractModel.predictive`.

        Returns:
            ``mean``, ``latent_variance`` and its parts, each (p,): ``variance_data1`` and so on, in the order of the
            chain, for the part of each data set alone (the last is the data set of the targets), and
            ``variance_interaction``; and ``latent_covariance`` (p, p), if requested.
        """
        model = self._at(sample)
        return model._moments(model._effect(data), x, covariance=covariance)

    def draw_predictive(self, rng_key: RngKey, sample: Sample, data: Data, x: Float[Array, "p d"]) -> Array:
        """Draw the effect at p treatments jointly, from the Gaussian that has its moments."""
        model = self._at(sample)
        effect = model._effect(data)
        found = model._moments(effect, x, covariance=True)
        if not (self.bayesian_embedding or self.uncertain_function):
            return found["mean"]
        scale = jnp.mean(found["latent_variance"]) + jnp.sum(jnp.abs(effect.scales))
        return draw_gaussian(rng_key, found["mean"], found["latent_covariance"], scale)

    def replicate(self, rng_key: RngKey, sample: Sample, data: Data) -> dict[str, Array]:
        model = self._at(sample)
        gram = model._target_gram(data["mediators"])
        factor = linalg.cholesky(linalg.add_diagonal(gram, model.noise_variance), what="the covariance matrix of `y`")
        across = linalg.solve_lower(factor, gram)  # new noise on the posterior of f at the same outcomes
        mean = model.mean + across.T @ linalg.solve_lower(factor, data["y"] - model.mean)
        covariance = linalg.add_diagonal(gram - across.T @ across, model.noise_variance)
        return {"y": draw_gaussian(rng_key, mean, covariance, jnp.mean(jnp.diagonal(gram)))}

    def function_draw(self, sample: Sample, data: Data) -> RKHSFunction:
        model = self._at(sample)
        effect = model._effect(data)
        rows, _, _ = effect.intervention.sections()
        kernel = effect.intervention.treatment_kernel
        return RKHSFunction(kernel, effect.intervention.treatment, rows.T @ effect.coefficients, model.mean)

    def site_dims(self, data: Data) -> dict[str, tuple[str, ...]]:
        numbers = range(len(self.links))
        return {f"links.{number}.embedding": (f"row_{number}", f"coordinate_{number}") for number in numbers}

    @property
    def _level(self) -> int:
        """The level of the kernel of f: 1, the nuclear dominant kernel, if both f and the embedding are random."""
        return int(self.bayesian_embedding and self.uncertain_function)

    def _target_gram(self, mediators: Float[Array, "M dy"]) -> Float[Array, "M M"]:
        """Return the prior covariance of f at the outcomes of the targets."""
        return self.amplitude * self.links[-1].space.level_kernel(self._level).gram(mediators)

    def _observe(self, space: OutcomeSpace, outcome: Array) -> dict[str, Array]:
        """Return the distinct outcomes, the factor of their covariance, and the observations in its coordinates.

        Equal outcomes have equal sections, so a regression on the distinct ones is the same, and not singular.
        """
        _, first = np.unique(outcome, axis=0, return_index=True)
        distinct = jnp.asarray(np.asarray(outcome)[np.sort(first)])
        gram, sections = _outcome_grams(space, int(self.bayesian_embedding), distinct, outcome)
        factor = linalg.cholesky(gram, what="the kernel matrix of the outcomes")
        if np.min(np.diagonal(factor)) ** 2 < _MIN_PIVOT * np.mean(np.diagonal(gram)):
            factor = prior_factor(gram)
        coordinates = linalg.solve_lower(factor, sections).T
        return {"distinct": distinct, "factor": factor, "coordinates": coordinates}

    def _covariance(self, number: int, data: Data) -> Float[Array, "N N"]:
        """Return C, the covariance of the rows of an embedding's observations without the amplitude."""
        link = self.links[number]
        kernel = self._treatment_kernel(number, int(self.bayesian_embedding))
        gram = link.adjust(data["adjusting"]).gram(kernel, data["treatment"])
        return linalg.add_diagonal(gram, link.noise_variance)

    def _effect(self, data: Data) -> Effect:
        """Return the effect: the function of the targets through the links, the last one first.

        All priors have been replaced by numbers.
        """
        level = int(self.bayesian_embedding)
        space = self.links[-1].space
        given = data["mediators"], data["y"] - self.mean, self.noise_variance, self.amplitude
        function = RandomFunction.regression(space, self._level, *given, uncertain=self.uncertain_function)
        for number in reversed(range(len(self.links))):
            effect = self._through_link(number, data, function)
            function = effect.as_function(level) if number else function
        return effect

    def _moments(self, effect: Effect, x: Float[Array, "p *d"], *, covariance: bool) -> dict[str, Array]:
        phi = effect.intervention.cross(x)
        prior = jax.vmap(lambda row: effect.intervention.prior(row[None], row[None])[0, 0])(x)
        explained = jnp.sum(phi[None] * (effect.matrices @ phi), axis=1)
        parts = jnp.maximum(effect.scales[:, None] * prior[None] - explained, 0.0)
        names = [f"variance_data{number + 1}" for number in range(len(self.links) + 1)] + ["variance_interaction"]
        result = {"mean": self.mean + phi.T @ effect.coefficients, "latent_variance": jnp.sum(parts, axis=0)}
        result |= dict(zip(names, parts, strict=True))
        if covariance:
            matrix = phi.T @ jnp.sum(effect.matrices, axis=0) @ phi
            matrix = jnp.sum(effect.scales) * effect.intervention.prior(x, x) - (matrix + matrix.T) / 2
            result["latent_covariance"] = matrix
        return result

    def _through_link(self, number: int, data: Data, function: RandomFunction) -> Effect:
        """Return the effect of a link's treatment from a function of its outcome."""
        link, table, observed = self.links[number], data["links"][number], data["embeddings"][number]
        factor = linalg.cholesky(self._covariance(number, table), what="the kernel matrix of the treatments with noise")
        level, coordinates = int(self.bayesian_embedding), observed["coordinates"]
        amplitude = fitted_amplitude(coordinates, factor) if link.amplitude is None else link.amplitude
        outcome = observed["distinct"] if level else table["outcome"]
        embedding = RandomEmbedding(link.space, outcome, observed["factor"], coordinates, factor, amplitude, level)
        kernel = self._treatment_kernel(number, level)
        intervention = link.adjust(table["adjusting"]).intervention(kernel, table["treatment"])
        return inner_product(function, embedding, intervention)


@eqx.filter_jit
def _outcome_grams(space: OutcomeSpace, level: int, distinct: Array, outcome: Array) -> tuple[Array, Array]:
    """Return the Gram matrix of the distinct outcomes in the kernel of a level, and their sections at all outcomes."""
    return space.level_kernel(level).gram(distinct), space.kernel(distinct, outcome)
