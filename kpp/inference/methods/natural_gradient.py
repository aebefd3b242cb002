"""Stochastic variational inference for models with inducing points, by natural gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpyro import handlers
from numpyro.distributions import biject_to

from kpp import linalg
from kpp.foundation.validation import between, count, positive
from kpp.inference.base import (
    AbstractInference,
    CalledWith,
    Data,
    NumpyroModel,
    Posterior,
    inspect_sites,
    without_latents,
)
from kpp.inference.example_models import regression_data, regression_through_features
from kpp.inference.methods.optimum import initial_values
from kpp.inference.methods.svi import check_bound, mean_of_last, with_cosine_decay
from kpp.runtime.batching import progress_bar
from kpp.typing import RngKey

_CHUNK = 50  # steps between two looks at the progress bar


@runtime_checkable
class _ThroughFeatures(Protocol):
    """The law of an observed site that depends on whitened values by features: `kpp.gp.toolkit.FeatureObservations`."""

    likelihood: Any
    features: Array
    white: Array
    scale: Array
    loc: Array
    latent_variance: Array
    whitened: str


class _WhitenedLaws(NamedTuple):
    r"""The laws of the l columns of whitened values, :math:`N(\Lambda^{-1} \eta, \Lambda^{-1})`."""

    shift: Array  # eta, the natural parameter
    precision: Array  # Lambda

    def roots(self) -> Float[Array, "l w w"]:
        r"""Return R with :math:`\Lambda^{-1} = R^\top R`."""
        return jax.lax.map(
            lambda each: linalg.whitener(each, what="the precision of the whitened values"), self.precision
        )


class _State(NamedTuple):
    """The state of the optimization: the unconstrained other sites, their optimizer, the law, the bounds so far."""

    sites: dict[str, Array]
    optimizer: Any
    law: _WhitenedLaws
    bounds: Array


class NaturalGradient(AbstractInference):
    r"""Fit a model with inducing points: the law of their values by natural gradients, all other sites by their mode.

    .. math:: \mathrm{ELBO}(\theta, m, S) = \log p(\theta) + \sum_i E_{N(f_i; \mu_i, v_i)} \log p(y_i \mid f_i, \theta)
        - \mathrm{KL}\bigl(N(m, S)\, \|\, N(0, I)\bigr)

    The law N(m, S) of the whitened values z has a full covariance, and the expectation over it is exact where the
    likelihood knows it, so no draws of z disturb the gradients. With the features :math:`\phi_i` of a row, the slopes
    :math:`g_i = \partial / \partial \mu_i` and the curvatures :math:`h_i = -2\, \partial / \partial v_i` of the sum, a
    step of size :math:`\rho` is

    .. math:: S^{-1} \leftarrow (1 - \rho)\, S^{-1} + \rho\, (I + \Phi^\top H \Phi), \qquad
        S^{-1} m \leftarrow (1 - \rho)\, S^{-1} m + \rho\, \Phi^\top (g + H \Phi m)

    Negative curvatures of a likelihood that is not log-concave are set to 0. The other sites take a step of Adam. A
    plate with a ``subsample_size`` draws a new minibatch in each step, with replacement. Step t of T has
    :math:`\rho = \max(\rho_{\min}, \tfrac12 \rho_0 (1 + \cos(\pi t / T)))`: large steps let the law follow the other
    sites, and small ones at the end average the noise of the minibatches out.

    The model observes a `kpp.gp.toolkit.FeatureObservations`, as all models of `kpp_models` with inducing points do
    whose likelihood is not Gaussian: of tables, of matches (`kpp_models.GPGP`) and of bags (`kpp_models.CMP`, `VBagg`).

    Args:
        num_steps: The number of steps.
        learning_rate: The initial learning rate of Adam for the other sites; it decreases along a cosine to a hundredth
            of this value.
        step_size: :math:`\rho_0`, the first step of the natural gradient, between 0 and 1.
        min_step: :math:`\rho_{\min}`, the smallest step of the natural gradient, between 0 and 1; 1 with all rows and
            Gaussian noise reaches the optimal law in one step.
        num_samples: The number of draws; one chain. The other sites are the same in all draws.
        progress: Whether to show a progress bar.

    Raises:
        ValueError: If a number is out of range.

    References:
        Hensman, Fusi and Lawrence, Gaussian processes for big data, 2013, section 3; Salimbeni, Eleftheriadis and
        Hensman, Natural gradients in practice, 2018.
    """

    approximates: ClassVar[bool] = True

    num_steps: int = eqx.field(static=True, default=1000)
    learning_rate: float = eqx.field(static=True, default=0.1)
    step_size: float = eqx.field(static=True, default=0.3)
    min_step: float = eqx.field(static=True, default=0.01)
    num_samples: int = eqx.field(static=True, default=100)
    progress: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        count(self.num_steps, "num_steps")
        count(self.num_samples, "num_samples")
        positive(self.learning_rate, "learning_rate")
        between(self.step_size, "step_size", 0.0, 1.0)
        between(self.min_step, "min_step", 0.0, 1.0)

    def run(self, rng_key: RngKey, numpyro_model: NumpyroModel, data: Data) -> Posterior:
        """Fit the law and the other sites, and draw.

        Raises:
            TypeError: If the model does not observe a `kpp.gp.toolkit.FeatureObservations`, or has deterministic sites.
            ConvergenceError: If the bound became NaN or infinite.
        """
        init_key, fit_key, draw_key = jax.random.split(rng_key, 3)
        fixed = without_latents(numpyro_model, data, inspect_sites(numpyro_model, data), "NaturalGradient")
        if fixed is not None:
            return fixed
        model = CalledWith(numpyro_model, subsample=True)
        law = _abstract_law(numpyro_model, data)
        start, scale = initial_values(model, init_key, data, "median")
        state = self._start(start, law.whitened)
        scale = {name: scale[name] for name in state.sites}
        zeros = jnp.zeros(law.loc.shape, law.loc.dtype)
        with progress_bar(self.num_steps, "natural gradient", unit="step", show=self.progress) as bar:
            for begin in range(0, self.num_steps, _CHUNK):
                end = min(begin + _CHUNK, self.num_steps)
                state = _run_steps(self, model, state, scale, zeros, fit_key, data, jnp.asarray([begin, end]))
                bound = float(state.bounds[end - 1])
                bar.set_postfix_str(f"bound {bound:.5g}", refresh=False)
                bar.update(end - begin)
                if not np.isfinite(bound):
                    break
        elbo = np.asarray(state.bounds)
        check_bound(elbo, self.learning_rate)
        values, means, roots = _found(model, state, fit_key, data)
        kept = {**values, _MEAN: means, _ROOT: roots}
        attrs = {"inference": "NaturalGradient", "elbo": mean_of_last(elbo)}
        samples = _draw(draw_key, self.num_samples, values, means, roots, law)
        return Posterior(samples, {"elbo": state.bounds[None]}, attrs, kept, stats_dims={"elbo": ("chain", "step")})

    def draw(
        self, rng_key: RngKey, num_samples: int, numpyro_model: NumpyroModel, data: Data, state: Mapping[str, jax.Array]
    ) -> Posterior:
        fixed = without_latents(numpyro_model, data, inspect_sites(numpyro_model, data), "NaturalGradient")
        if fixed is not None:
            return fixed
        law = _abstract_law(numpyro_model, data)
        values = {name: value for name, value in state.items() if name not in (_MEAN, _ROOT)}
        samples = _draw(rng_key, num_samples, values, state[_MEAN], state[_ROOT], law)
        return Posterior(samples, {}, {"inference": "NaturalGradient"}, dict(state))

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractInference, NumpyroModel, Data]]:
        options: dict[str, Any] = {"num_steps": 60, "min_step": 0.5, "num_samples": 20, "progress": False}
        yield cls(**options), regression_through_features, regression_data(rng_key)

    def _start(self, start: Mapping[str, Array], whitened: str) -> _State:
        sites = {name: value for name, value in start.items() if name != whitened}
        white = jnp.atleast_2d(start[whitened].T)  # (l, w)
        eye = jnp.eye(white.shape[1], dtype=white.dtype)
        law = _WhitenedLaws(jnp.zeros_like(white), jnp.broadcast_to(eye, (*white.shape, white.shape[1])))
        bounds = jnp.zeros(self.num_steps, white.dtype)
        return _State(sites, self._optimizer().init(sites), law, bounds)

    def _optimizer(self) -> Any:
        return with_cosine_decay("adam", self.learning_rate, self.num_steps)


_MEAN, _ROOT = "whitened_mean", "whitened_root"


def _abstract_law(numpyro_model: NumpyroModel, data: Data) -> _ThroughFeatures:
    """Return the law of the observed site with shapes in place of its arrays, or raise TypeError."""
    found: list[Any] = []

    def look(data: Data) -> None:
        seeded = handlers.seed(CalledWith(numpyro_model, subsample=True), jax.random.key(0))
        found.extend(handlers.trace(seeded).get_trace(data).values())

    jax.eval_shape(look, data)
    observed = [site["fn"] for site in found if site["type"] == "sample" and site["is_observed"]]
    if len(observed) != 1 or not isinstance(observed[0], _ThroughFeatures):
        raise TypeError(
            "`inference` must not be NaturalGradient for this model, which has no inducing points whose values are "
            "sites; GeneralizedGP, MultiLatentGP and GPClassification with latent='inducing' have"
        )
    if any(site["type"] == "deterministic" for site in found):
        raise TypeError("`inference` must not be NaturalGradient for a model with deterministic sites; use kpp.SVI")
    return observed[0]


@eqx.filter_jit
def _run_steps(
    settings: NaturalGradient,
    model: CalledWith,
    state: _State,
    scale: dict[str, Array],
    zeros: Array,
    rng_key: RngKey,
    data: Data,
    numbers: Int[Array, " 2"],
) -> _State:
    """Do some steps, of the other sites in their units; `zeros` has the shape of the latent values of a minibatch.

    The numbers of the first step and of the one after the last are an array because a number would be a constant of the
    program, which would then be compiled again for the next steps.
    """
    optimizer = settings._optimizer()

    def step(number: Array, state: _State) -> _State:
        roots = state.law.roots()
        means = _means(state.law, roots)
        covariances = jax.lax.map(lambda root: root.T @ root, roots)
        key = jax.random.fold_in(rng_key, number)
        (expected, seen), slopes = jax.value_and_grad(
            lambda sites, mean, variance: _bound(model, sites, means, covariances, mean, variance, key, data),
            argnums=(0, 1, 2),
            has_aux=True,
        )(state.sites, zeros, zeros)
        falling = 0.5 * settings.step_size * (1.0 + jnp.cos(jnp.pi * number / settings.num_steps))
        rho = jnp.maximum(settings.min_step, falling).astype(means.dtype)
        law = _natural_step(state.law, seen, means, slopes[1], slopes[2], rho)
        downhill = {name: -slopes[0][name] * unit for name, unit in scale.items()}
        updates, memory = optimizer.update(downhill, state.optimizer, state.sites)
        sites = {name: value + scale[name] * updates[name] for name, value in state.sites.items()}
        return _State(sites, memory, law, state.bounds.at[number].set(expected - _divergence(means, roots)))

    return jax.lax.fori_loop(numbers[0], numbers[1], step, state)


def _bound(
    model: CalledWith,
    sites: Mapping[str, Array],
    means: Float[Array, "l w"],
    covariances: Float[Array, "l w w"],
    mean_change: Array,
    variance_change: Array,
    rng_key: RngKey,
    data: Data,
) -> tuple[Array, Any]:
    """Return the bound without the divergence, and the law of the observed site.

    The changes are added to means and variances of the latent values: the bound is differentiated at 0.
    """
    trace = _trace(model, sites, means, rng_key, data)
    site = next(site for site in trace.values() if site["type"] == "sample" and site["is_observed"])
    seen = site["fn"]
    spread = jnp.stack([_variances(seen.features, covariance) for covariance in covariances], axis=1)
    spread = jnp.square(seen.scale)[None] * spread if seen.white.ndim == 2 else spread[:, 0]
    mean, variance = seen.loc + mean_change, seen.latent_variance + spread + variance_change
    likelihood = seen.likelihood.observe(jnp.asarray(site["value"], mean.dtype))
    total = (1.0 if site["scale"] is None else site["scale"]) * jnp.sum(likelihood.expected_log_density(mean, variance))
    for name, site in trace.items():
        if site["type"] == "sample" and not site["is_observed"] and name != seen.whitened:
            total = total + jnp.sum(site["fn"].log_prob(site["value"]))
    return total, seen


def _variances(features: Float[Array, "b w"], covariance: Float[Array, "w w"]) -> Float[Array, " b"]:
    r"""Return :math:`\phi_i^\top S \phi_i`; one product with S serves for the values and for the derivative."""
    fixed = jax.lax.stop_gradient(features)
    # With `fixed` constant, the derivative is 2 S phi, that of the quadratic form.
    return jnp.maximum(jnp.sum((2.0 * features - fixed) * (fixed @ covariance), axis=1), 0.0)


def _trace(
    model: CalledWith, sites: Mapping[str, Array], means: Float[Array, "l w"], rng_key: RngKey, data: Data
) -> dict[str, Any]:
    """Run the model with given unconstrained values of its other sites and the mean of the whitened values.

    The rows of a minibatch are drawn with replacement, which takes much less time than NumPyro's draws without.
    """

    def value(site: dict[str, Any]) -> Array | None:
        if site["type"] == "plate":
            size, batch = site["args"]
            return None if site["value"] is not None else jax.random.randint(rng_key, (batch,), 0, size)
        if site["type"] != "sample" or site["is_observed"]:
            return None
        if site["name"] in sites:
            return biject_to(site["fn"].support)(sites[site["name"]])
        return means[0] if len(site["fn"].event_shape) == 1 else means.T

    seeded = handlers.seed(model, rng_key)
    return handlers.trace(handlers.substitute(seeded, substitute_fn=value)).get_trace(data)


def _natural_step(
    law: _WhitenedLaws, seen: Any, means: Array, by_mean: Array, by_variance: Array, rho: Array
) -> _WhitenedLaws:
    """Move the law by a step of the natural gradient."""
    features = seen.features
    columns = by_mean.shape[1:] or (1,)
    # -2 dE / dv = -E (log p)'' by Price's theorem, at least 0 for a concave density.
    slope, curvature = (value.reshape(-1, *columns).T for value in (by_mean, jnp.maximum(-2.0 * by_variance, 0.0)))
    scale = jnp.broadcast_to(seen.scale, columns)
    eye = jnp.eye(means.shape[1], dtype=means.dtype)

    def target(args: tuple[Array, ...]) -> tuple[Array, Array]:
        slope, curvature, scale, mean = args
        weighted = (scale * curvature)[:, None] * features
        shift = scale * (features.T @ slope) + scale * (weighted.T @ (features @ mean))
        return shift, eye + scale * (features.T @ weighted)

    shift, precision = jax.lax.map(target, (slope, curvature, scale, means))
    return _WhitenedLaws(*((1.0 - rho) * old + rho * new for old, new in zip(law, (shift, precision), strict=True)))


def _means(law: _WhitenedLaws, roots: Float[Array, "l w w"]) -> Float[Array, "l w"]:
    return jnp.einsum("lij,lik,lk->lj", roots, roots, law.shift)


def _divergence(means: Float[Array, "l w"], roots: Float[Array, "l w w"]) -> Array:
    """Return the divergence of the law of the whitened values from standard normal ones."""
    log_determinant = 2.0 * jnp.sum(jnp.log(jnp.diagonal(roots, axis1=1, axis2=2)))
    return 0.5 * (jnp.sum(jnp.square(roots)) + jnp.sum(jnp.square(means)) - means.size - log_determinant)


@eqx.filter_jit
def _found(model: CalledWith, state: _State, rng_key: RngKey, data: Data) -> tuple[dict[str, Array], Array, Array]:
    """Return the values of the other sites, and the law of the whitened values by mean and root."""
    roots = state.law.roots()
    means = _means(state.law, roots)
    trace = _trace(model, state.sites, means, rng_key, data)
    return {name: trace[name]["value"] for name in state.sites}, means, roots


def _draw(
    rng_key: RngKey, num: int, values: Mapping[str, Array], means: Array, roots: Array, law: _ThroughFeatures
) -> dict[str, Array]:
    """Draw the whitened values; the other sites have the same value in all draws."""
    normal = jax.random.normal(rng_key, (num, *means.shape), means.dtype)
    white = means[None] + jnp.einsum("lij,sli->slj", roots, normal)
    drawn = {name: jnp.broadcast_to(value, (1, num, *jnp.shape(value))) for name, value in values.items()}
    return {**drawn, law.whitened: (white[:, 0] if law.white.ndim == 1 else jnp.swapaxes(white, 1, 2))[None]}
