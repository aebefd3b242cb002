"""Stochastic variational inference with the guides of NumPyro."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.infer
import numpyro.infer.autoguide as autoguide
from numpyro import handlers
from numpyro.infer import init_to_median

from kpp.foundation.validation import count, one_of, positive
from kpp.inference.base import (
    AbstractInference,
    CalledWith,
    ConvergenceError,
    Data,
    NumpyroModel,
    Posterior,
    Site,
    evaluate_draws,
    inspect_sites,
    num_latent_numbers,
    without_latents,
)
from kpp.inference.example_models import linear_regression, regression_data
from kpp.inference.methods.optimum import with_units
from kpp.typing import RngKey

_LOGGER = logging.getLogger("kpp")
_OPTIMIZERS = ("adam", "adamw", "rmsprop", "sgd")  # functions of optax


class SVI(AbstractInference):
    r"""Fit a parametric family to the posterior by maximizing the evidence lower bound, and draw from it.

    .. math:: \mathrm{ELBO}(\phi) = E_{q_\phi(u)}\big[\log p(y, u) - \log q_\phi(u)\big]

    over the unconstrained coordinates u of all latent sites, in units of the standard deviations of the priors. Each
    step uses a new estimate of the bound, and a plate with a ``subsample_size`` draws a new subsample. `sample_stats`
    keeps the estimates as ``elbo``, with dims (chain, step).

    Args:
        guide: The family: "normal" (independent coordinates), "multivariate_normal", "low_rank_multivariate_normal", or
            a normal law behind a flow, "iaf_normal" (inverse autoregressive) or "bnaf_normal" (block neural
            autoregressive), for posteriors that are bent. Or a function of the NumPyro model that returns a guide: a
            class of `numpyro.infer.autoguide`, or a function that returns a NumPyro program, which takes the arguments
            of the model and samples its latent sites. A fit with a function cannot be saved.
        num_steps: Steps of the optimizer.
        learning_rate: The initial learning rate of an optimizer given by name. It decreases along a cosine to a
            hundredth of this value, so that the noise of the gradients averages out.
        optimizer: "adam", "adamw", "rmsprop" or "sgd", or an optimizer of optax or `numpyro.optim`, which has its own
            learning rate. A fit with the latter cannot be saved.
        num_particles: The number of draws over which each estimate is averaged.
        num_samples: The number of draws from the fitted family; one chain.
        progress: Whether to show a progress bar.

    Raises:
        ValueError: If a number is out of range or a name is unknown.

    References:
        A. Kucukelbir et al. (2017). Automatic differentiation variational inference. JMLR 18; D. P. Kingma et al.
        (2016). Improved variational inference with inverse autoregressive flow. NeurIPS ("iaf_normal"); N. De Cao, I.
        Titov, W. Aziz (2019). Block neural autoregressive flow. UAI ("bnaf_normal").
    """

    approximates: ClassVar[bool] = True

    guide: Any = eqx.field(static=True, default="normal")
    num_steps: int = eqx.field(static=True, default=5000)
    learning_rate: float = eqx.field(static=True, default=0.01)
    optimizer: Any = eqx.field(static=True, default="adam")
    num_particles: int = eqx.field(static=True, default=1)
    num_samples: int = eqx.field(static=True, default=1000)
    progress: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        for name in ("num_steps", "num_particles", "num_samples"):
            count(getattr(self, name), name)
        positive(self.learning_rate, "learning_rate")
        if not callable(self.guide):
            one_of(self.guide, "guide", GUIDES)
        if isinstance(self.optimizer, str):
            one_of(self.optimizer, "optimizer", _OPTIMIZERS)

    def run(self, rng_key: RngKey, numpyro_model: NumpyroModel, data: Data) -> Posterior:
        """Fit the family and draw from it.

        Raises:
            ConvergenceError: If the bound became NaN or infinite.
            TypeError: If `guide` is a function that does not return a guide.
            ValueError: If the guide lacks a latent site, or a flow is asked for a single number.
        """
        sites = inspect_sites(numpyro_model, data)
        if (fixed := without_latents(numpyro_model, data, sites, "SVI")) is not None:
            return fixed
        fit_key, draw_key = jax.random.split(rng_key)
        model = with_units(CalledWith(numpyro_model, subsample=True), data)
        guide = build_guide(self.guide, model, sites)
        loss = numpyro.infer.Trace_ELBO(num_particles=self.num_particles)
        optimizer = self.optimizer
        if isinstance(optimizer, str):
            optimizer = with_cosine_decay(optimizer, self.learning_rate, self.num_steps)
        svi = numpyro.infer.SVI(model, guide, optimizer, loss)

        def fit(fit_key: RngKey, draw_key: RngKey, data: Data) -> tuple[Any, ...]:
            result = svi.run(fit_key, self.num_steps, data, progress_bar=self.progress)
            draws = draw_from_guide(draw_key, self.num_samples, guide, model, sites, data, result.params)
            return flatten_parameters(result.params), -result.losses, draws

        with jax.numpy_rank_promotion("allow"):  # NumPyro's flows broadcast arrays of different ranks
            if isinstance(guide, CalledWith):  # an own program may lack a site
                eqx.filter_eval_shape(find_parameters, guide, data, sites)
            # A progress bar needs the steps one by one; without it all is one program.
            state, elbo, samples = (fit if self.progress else eqx.filter_jit(fit))(fit_key, draw_key, data)
        check_bound(np.asarray(elbo), self.learning_rate)
        attrs = {**self._attrs(), "elbo": mean_of_last(np.asarray(elbo))}
        state |= model.state()
        return Posterior(samples, {"elbo": elbo[None]}, attrs, state, stats_dims={"elbo": ("chain", "step")})

    def _attrs(self) -> dict[str, object]:
        name = self.guide if isinstance(self.guide, str) else getattr(self.guide, "__name__", "function")
        return {"inference": "SVI", "guide": name}

    def draw(
        self, rng_key: RngKey, num_samples: int, numpyro_model: NumpyroModel, data: Data, state: Mapping[str, jax.Array]
    ) -> Posterior:
        sites = inspect_sites(numpyro_model, data)
        if (fixed := without_latents(numpyro_model, data, sites, "SVI")) is not None:
            return fixed
        model, kept = CalledWith(numpyro_model, subsample=True).from_state(state)
        guide = build_guide(self.guide, model, sites)

        def make(rng_key: RngKey, data: Data, flat: dict[str, jax.Array]) -> dict[str, jax.Array]:
            parameters = unflatten_parameters(flat, find_parameters(guide, data, sites))
            return draw_from_guide(rng_key, num_samples, guide, model, sites, data, parameters)

        with jax.numpy_rank_promotion("allow"):
            samples = eqx.filter_jit(make)(rng_key, data, kept)
        return Posterior(samples, {}, self._attrs(), dict(state))

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractInference, NumpyroModel, Data]]:
        yield cls(num_steps=300, num_samples=50, progress=False), linear_regression, regression_data(rng_key)


def _window(num_steps: int) -> int:
    return max(num_steps // 10, 1)


def with_cosine_decay(optimizer: str, learning_rate: float, num_steps: int) -> Any:
    """Return an optimizer of optax whose learning rate decreases along a cosine to a hundredth."""
    import optax  # loaded on use

    return getattr(optax, optimizer)(optax.cosine_decay_schedule(learning_rate, num_steps, alpha=0.01))


def mean_of_last(elbo: np.ndarray) -> float:
    """Return the mean of the last tenth of the estimates of a bound."""
    return float(elbo[-_window(elbo.size) :].mean())


def check_bound(elbo: np.ndarray, learning_rate: float) -> None:
    """Raise if the bound is not finite at the end; warn if it still increased over the last fifth of the steps."""
    window = _window(elbo.size)
    last, before = elbo[-window:], elbo[-2 * window : -window]
    if not np.isfinite(last).all():
        raise ConvergenceError(
            f"the evidence lower bound is not finite at the end of {elbo.size} steps; lower `learning_rate` (it is "
            f"{learning_rate:g}) or use tighter priors"
        )
    if before.size < 2:
        return
    rise = last.mean() - before.mean()
    noise = np.sqrt((last.var() + before.var()) / window)
    # 4 standard errors; 0.1 nats, because a smaller change of the bound hardly changes the posterior.
    if rise > max(4.0 * noise, 0.1):
        _LOGGER.warning(
            "the evidence lower bound still rose by %.3g over the last fifth of %d steps; raise `num_steps`",
            rise,
            elbo.size,
        )


class _InOrder(autoguide.AutoGuide):
    """A guide that keeps its sites in the order of the model: in a compiled program JAX sorts them by name.

    The draws of a key, and the layout of the parameters in a file, depend on this order.
    """

    _init_locs: dict[str, jax.Array]

    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        super()._setup_prototype(*args, **kwargs)
        self._init_locs = {name: self._init_locs[name] for name in self.prototype_trace if name in self._init_locs}


class _Normal(autoguide.AutoNormal, _InOrder):
    pass


class _MultivariateNormal(autoguide.AutoMultivariateNormal, _InOrder):
    pass


class _LowRankMultivariateNormal(autoguide.AutoLowRankMultivariateNormal, _InOrder):
    pass


GUIDES: dict[str, Callable[..., Any]] = {
    "normal": _Normal,
    "multivariate_normal": _MultivariateNormal,
    "low_rank_multivariate_normal": _LowRankMultivariateNormal,
    "iaf_normal": autoguide.AutoIAFNormal,
    "bnaf_normal": autoguide.AutoBNAFNormal,
}
_FLOWS = ("iaf_normal", "bnaf_normal")


def build_guide(guide: Any, model: CalledWith, sites: Mapping[str, Site]) -> Callable[[Data], Any]:
    """Return the guide of a model, from its name or from a function of the model that returns a guide.

    Raises TypeError if the function does not return a guide, and ValueError for a flow of a model with a single number.
    """
    size = num_latent_numbers(sites)
    if isinstance(guide, str) and guide in _FLOWS and size < 2:
        raise ValueError(f"`guide` {guide!r} needs a model with two or more latent numbers, got {size}; use 'normal'")
    # A search from other starts than the priors' medians fails where the targets are very small or very large numbers.
    found = GUIDES[guide](model, init_loc_fn=init_to_median) if isinstance(guide, str) else guide(model)
    if isinstance(found, autoguide.AutoGuide):
        return found
    if not callable(found):
        raise TypeError(
            "`guide` must be a name or a function of the NumPyro model that returns a guide, got one that returns a "
            f"{type(found).__name__}"
        )
    return CalledWith(found, subsample=True)


def find_parameters(guide: Callable[[Data], Any], data: Data, sites: Mapping[str, Site]) -> dict[str, Any]:
    """Run a guide, which must have all latent sites of the model, once; return its initial parameters."""
    with handlers.block():
        trace = handlers.trace(handlers.seed(guide, jax.random.key(0))).get_trace(data)
    missing = sorted(name for name, site in sites.items() if site.kind == "latent" and name not in trace)
    if missing:
        raise ValueError(f"`guide` must sample all latent sites of the model, but it lacks {missing}")
    return {name: site["value"] for name, site in trace.items() if site["type"] == "param"}


def draw_from_guide(
    rng_key: RngKey,
    num_samples: int,
    guide: Callable[[Data], Any],
    model: CalledWith,
    sites: Mapping[str, Site],
    data: Data,
    parameters: Mapping[str, Any],
) -> dict[str, jax.Array]:
    """Draw latent sites, and compute the deterministic ones; return one chain, site -> (1, num_samples, ...)."""
    keys = jax.random.split(rng_key, num_samples)
    if isinstance(guide, autoguide.AutoGuide):
        # One sample after the other, so that deterministic sites need the memory of a single sample.
        draw = jax.jit(lambda keys, values: jax.lax.map(lambda key: guide.sample_posterior(key, values), keys))
        return {name: value[None] for name, value in draw(keys, dict(parameters)).items()}
    latent = [name for name, site in sites.items() if site.kind == "latent"]

    def one(key: RngKey) -> dict[str, jax.Array]:
        seeded = handlers.seed(handlers.substitute(guide, dict(parameters)), key)
        trace = handlers.trace(seeded).get_trace(data)
        return {name: trace[name]["value"] for name in latent}

    draws = {name: value[None] for name, value in jax.lax.map(one, keys).items()}
    return evaluate_draws(model, tuple(sites), draws, data)[0]


def flatten_parameters(parameters: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Return the arrays of parameters that may be nested, as those of a network are, by names of their paths."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(dict(parameters))
    return {_name(path): jnp.asarray(leaf) for path, leaf in leaves}


def unflatten_parameters(flat: Mapping[str, jax.Array], like: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters in the structure of others; the inverse of `flatten_parameters`."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(dict(like))
    return dict(jax.tree.unflatten(structure, [flat[_name(path)] for path, _ in leaves]))


_name = functools.partial(jax.tree_util.keystr, simple=True, separator=".")
