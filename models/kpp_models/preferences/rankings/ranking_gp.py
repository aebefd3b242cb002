r"""Gaussian processes of utilities, from rankings of several items and from choices of the best item of a set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.data.tables import Schema
from kpp.foundation.validation import as_points, check_same_rows, check_type, one_of, warn_if_float32
from kpp.gp import AbstractGPModel, GaussianLikelihood, condition_on_values, replace_priors
from kpp.gp.toolkit import FUNCTION_VALUES, WHITENED, ConditionedProcess, check_kernel_fits, draw_joint, prior_factor
from kpp.inference import Data, Fit
from kpp.inference.toolkit import Sample
from kpp.kernels import RBF, AbstractKernel
from kpp.preferences import Rankings
from kpp.priors import is_prior
from kpp.priors import sample as draw_priors
from kpp.typing import Points, RngKey
from kpp_models.preferences.choose_latent import choose_latent
from kpp_models.preferences.data import check_same_items, refuse_codes, resolve_names
from kpp_models.preferences.rankings import ranking_laplace
from kpp_models.preferences.rankings.ranking_laplace import PlackettLuce

LATENTS = ("laplace", "sample")


class RankingGP(AbstractGPModel):
    r"""A Gaussian process of the utility of items, observed through rankings or choices with the Plackett-Luce law.

    .. math:: P(s_1 \text{ before } s_2 \text{ before } \ldots) = \prod_r \frac{e^{f(s_r)}}{\sum_{q \ge r} e^{f(s_q)}},
        \qquad f \sim GP(0, k)

    It is the law of the order of the utilities with independent Gumbel noise. Rankings of two items are the matches of
    `PGP` with the logit, and both models are then the same. A constant utility has no influence, so only differences
    of f between items are determined.

    `predict` takes items and gives ``mean`` and ``latent_variance`` of f; `kpp_models.choice_probabilities` gives the
    probability with which each item of a set is chosen, and `kpp_models.sample_preferences` draws all preferences.
    `fit.function()` is the utility, a function of one item, which every explainer of tables takes.

    If the rankings have contexts, the utility is a function of an item and a context, and the kernel is
    `kpp.kernels.Contextual` of a kernel on items and one on contexts:

    .. math:: f(s, z) \sim GP(0, k(s, s')\, k_z(z, z'))

    Rankings of two items are then the matches of `PreferenceGP` with ``Contextual(Preferential(k), k_z)``, and
    `predict` takes a tuple of items (p, d) and contexts (p, c).

    The observed site ``y`` holds the positions of the ranked items among the candidates, (m, R). The pointwise log
    likelihood has one term per ranking: under Laplace's approximation it is leave-one-out by the Laplace cavity, and
    with sampled utilities it is :math:`\log p(y_i \mid f)`.

    Time is of the third power of the number of items, or of different items in different contexts, and linear in the
    number of rankings.

    Args:
        kernel: k, a kernel on items, or with contexts `kpp.kernels.Contextual`, with numbers or priors as leaves.
        latent: "laplace" integrates f out by Laplace's approximation, "sample" makes the inference sample its values at
            the items. By default `kpp.NUTS` samples, and every other inference uses Laplace's approximation, which
            `kpp.Laplace` corrects by importance weights.

    Raises:
        ValueError: If `latent` is unknown.

    References:
        R. L. Plackett, The analysis of permutations, 1975; Chu and Ghahramani, Preference learning with Gaussian
        processes, 2005.
    """

    needs_draws_of_hyperparameters = True

    kernel: AbstractKernel
    latent: str | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        one_of(self.latent, "latent", (None, *LATENTS))

    def fit(self, rng_key: RngKey, x: Any, y: Any = None, **options: Any) -> Fit:
        """Fit the model to rankings.

        Args:
            rng_key: A JAX random key.
            x: `kpp_models.Rankings`.
            y: Orders in place of those that `x` holds, such as a draw of the posterior predictive: the positions of the
                ranked items among the candidates, (m, R), -1 beyond their number. By default those of `x`.
            **options: ``inference`` and ``num_prior_samples``, as for every model.

        Returns:
            The fit.

        Raises:
            TypeError: If `x` is not `Rankings`.
            ValueError: If the kernel does not fit the items and contexts, or `y` is not of the form of the orders of
                `x`.
        """
        model, options = choose_latent(self, options)
        return super(RankingGP, model).fit(rng_key, x, y, **options)  # `super()` would fit `self`

    def prepare(self, x: Any, y: Any = None) -> tuple[RankingGP, dict[str, Any], Schema]:
        warn_if_float32(type(self).__name__)
        check_type(x, "x", ("Rankings",))
        rankings = x if y is None else x.with_order(y)
        kernel, (points, candidates) = resolve_names(self.kernel, x), x.options()
        check_kernel_fits(kernel, points)
        refuse_codes(kernel, x)
        model = eqx.tree_at(lambda tree: tree.kernel, self, kernel, is_leaf=is_prior)
        num_ranked = jax.device_put((np.asarray(x.order) >= 0).sum(axis=1))
        data = {"x": points, "candidates": candidates, "num_ranked": num_ranked, "y": rankings.order}
        return model, data, x.schema

    def read_points(self, x: Any, schema: Schema | None) -> Any:
        """Read items to predict at, possibly in a tuple with contexts; see `AbstractModel.read_points`.

        Contexts that were text must be coded as in the fit.
        """
        if not (isinstance(x, tuple) and len(x) == 2):
            return super().read_points(x, schema)
        items, contexts = super().read_points(x[0], schema), as_points(x[1], "x[1]")
        check_same_rows(items.shape[0], contexts.shape[0], "x[0]", "x[1]")
        return items, contexts

    def numpyro_model(self, x: Any, candidates: Any, num_ranked: Any, y: Any = None) -> None:
        """The NumPyro model; `prepare` returns its arguments, and without orders (m, R) these are drawn."""
        model = replace_priors(self, draw_priors)
        covariance = model.kernel.gram(x)
        num_places = candidates.shape[1] - 1 if y is None else y.shape[1]
        law = PlackettLuce(candidates, num_ranked, None, num_places)
        if model.latent in (None, "laplace"):
            numpyro.sample("y", ranking_laplace.RankingMarginal(covariance, law, whitened=WHITENED), obs=y)
            return
        white = numpyro.sample(WHITENED, dist.Normal(0.0, 1.0).expand([covariance.shape[0]]).to_event(1))
        with numpyro.plate("instance", candidates.shape[0]):
            numpyro.sample("y", ranking_laplace.RankingObservations(prior_factor(covariance) @ white, law), obs=y)

    def posterior(self, sample: Sample, data: Data) -> ConditionedProcess:
        """Return the posterior of the utility, by Laplace's approximation if its values at the items are not drawn."""
        kernel = self.at(sample).kernel
        if WHITENED in sample:
            noiseless = GaussianLikelihood(noise_variance=0.0)
            return condition_on_values(kernel, data["x"], sample[WHITENED], noiseless)
        return ranking_laplace.condition_on_rankings(kernel, data["x"], _law(data))

    def log_likelihood(self, sample: Sample, data: Data) -> dict[str, Array]:
        """Return the log likelihood of every ranking; see the class."""
        law, posterior = _law(data), self.posterior(sample, data)
        if WHITENED in sample:
            return {"y": law.log_density(posterior.moments(data["x"]).mean)}
        found = posterior.moments(data["x"], covariance=True)
        assert found.covariance is not None
        return {"y": ranking_laplace.held_out_log_density(law, found.mean, found.covariance)}

    def predictive(self, sample: Sample, data: Data, x: Points, *, covariance: bool = False) -> dict[str, Array]:
        check_same_items(x, data["x"])
        found = super().predictive(sample, data, x, covariance=covariance)
        return {name: value for name, value in found.items() if name != "noise_variance"}

    def draw_latent(self, rng_key: RngKey, sample: Sample, data: Data, x: Points) -> Float[Array, " p"]:
        check_same_items(x, data["x"])
        return super().draw_latent(rng_key, sample, data, x)

    def draw_predictive(self, rng_key: RngKey, sample: Sample, data: Data, x: Points) -> Float[Array, " p"]:
        """Draw one new ranking of p items; return the rank of each, 1 for the best."""
        first, second = jax.random.split(rng_key)
        utilities = self.draw_latent(first, sample, data, x)
        # With Gumbel's noise the order has the law of Plackett and Luce.
        noisy = utilities + jax.random.gumbel(second, utilities.shape, utilities.dtype)
        return 1.0 + jnp.argsort(jnp.argsort(-noisy)).astype(noisy.dtype)  # the inverse of the order

    def replicate(self, rng_key: RngKey, sample: Sample, data: Data) -> dict[str, Array]:
        first, second = jax.random.split(rng_key)
        posterior, x = self.posterior(sample, data), data["x"]
        utilities = draw_joint(first, posterior.joint(x), self.variance_scale(posterior, x))
        return {"y": _law(data).draw(second, utilities)}

    def site_dims(self, data: Data) -> dict[str, tuple[str, ...]]:
        return {"y": ("instance", "place"), FUNCTION_VALUES: ("item",), WHITENED: ("coordinate",)}

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[RankingGP, Rankings, Array]]:
        items = jax.random.uniform(rng_key, (5, 2), minval=-2.0, maxval=2.0)
        rankings = Rankings.create(items, [[0, 1, 2], [3, 1], [4], [2, 0, 4, 1]], [[], [0, 2], [0, 1], []])
        yield cls(RBF(dist.LogNormal(0.0, 0.5))), rankings, rankings.order


def _law(data: Data) -> PlackettLuce:
    y = data["y"]
    return PlackettLuce(data["candidates"], data["num_ranked"], y, y.shape[1])
