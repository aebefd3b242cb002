"""The samplers of NumPyro by name: ensembles of walkers, on subsamples of the rows, and others beside NUTS."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
import numpyro.diagnostics
import numpyro.infer
from numpyro.infer import HMCECS, NUTS
from numpyro.infer.mcmc import MCMCKernel
from numpyro.infer.util import potential_energy, unconstrain_fn

from kpp.foundation.validation import count, one_of
from kpp.inference.base import (
    AbstractInference,
    CalledWith,
    Data,
    NumpyroModel,
    Posterior,
    Site,
    evaluate_draws,
    inspect_sites,
    num_latent_numbers,
    trace,
    without_latents,
)
from kpp.inference.example_models import linear_regression, regression_data
from kpp.inference.methods.laplace import MAP
from kpp.inference.methods.optimum import with_units
from kpp.typing import RngKey

_LOGGER = logging.getLogger("kpp")
_SAMPLERS: dict[str, Callable[[CalledWith], MCMCKernel]] = {
    "aies": numpyro.infer.AIES,
    "ess": numpyro.infer.ESS,
    "barker": numpyro.infer.BarkerMH,
}
# The diagnostics of a step that NumPyro's states hold, and their names in ArviZ.
_STATISTICS: dict[type[MCMCKernel], dict[str, str]] = {
    numpyro.infer.HMC: {"accept_prob": "acceptance_rate", "diverging": "diverging", "num_steps": "n_steps"},
    numpyro.infer.SA: {"accept_prob": "acceptance_rate", "diverging": "diverging"},
    numpyro.infer.BarkerMH: {"accept_prob": "acceptance_rate"},
    numpyro.infer.HMCECS: {
        "hmc_state.accept_prob": "acceptance_rate",
        "hmc_state.diverging": "diverging",
        "hmc_state.num_steps": "n_steps",
        "accept_prob": "subsample_acceptance_rate",
    },
}
_SUBSAMPLING = "hmcecs"
_ENERGY = "hmc_state.potential_energy"
_FEWEST_WALKERS = 4  # each half of an ensemble needs two, whose difference is a direction
_LARGEST_R_HAT = 1.05
# Importance weights whose logarithms have this standard deviation have an effective sample size of 78 %.
_LARGEST_SPREAD = 0.5
_FEWEST_DRAWS = 4  # for R-hat of halves of chains


class MCMC(AbstractInference):
    r"""Draw from the posterior by a sampler of NumPyro.

    `kpp.NUTS` is the sampler to begin with. "aies" and "ess" serve where a model has no gradients.

    * "aies" and "ess" (affine-invariant ensemble sampling, ensemble slice sampling): the chains are walkers, which
      move along the differences between each other.
    * "barker": Metropolis-Hastings with the Barker proposal, which is skewed along the gradient.
    * "hmcecs": the No-U-Turn sampler on subsamples of very many rows, for models with a plate that draws them (the
      models of kpp with `minibatch`). It needs a posterior that is close to a Gaussian: its likelihood is expanded
      around the mode. The attribute ``log_density_spread`` of the posterior is the standard deviation of the log
      density of all rows minus the sampled one; from 0.5 on a warning says that the draws may be biased.

    `sample_stats` holds ``lp``, the log density of data and draw as the model is written, and the acceptance rates and
    divergences that the sampler keeps.

    Args:
        sampler: A name from the list above, or a function of a NumPyro model that returns a sampler (a class of
            `numpyro.infer`, or for example ``functools.partial(numpyro.infer.HMC, num_steps=5)``). A fit with a
            function cannot be saved.
        num_warmup: Steps of each chain that are not kept, and in which the sampler adapts.
        num_samples: Draws kept per chain.
        num_chains: The number of chains, for ensembles the even number of walkers; None for 2 chains, and for as many
            walkers as twice the number of parameters, at least 8.
        progress: Whether to show progress bars.

    Raises:
        ValueError: If a number is out of range or a name is unknown.

    References:
        J. Goodman, J. Weare (2010). Ensemble samplers with affine invariance. CAMCoS 5 ("aies");
        M. Karamanis, F. Beutler (2021). Ensemble slice sampling. Statistics and Computing 31 ("ess");
        S. Livingstone, G. Zanella (2022). The Barker proposal. JRSS B 84 ("barker");
        K.-D. Dang, M. Quiroz, R. Kohn, M.-N. Tran, M. Villani (2019). Hamiltonian Monte Carlo with energy conserving
        subsampling. JMLR 20 ("hmcecs").
    """

    sampler: Any = eqx.field(static=True, default="aies")
    num_warmup: int = eqx.field(static=True, default=1000)
    num_samples: int = eqx.field(static=True, default=500)
    num_chains: int | None = eqx.field(static=True, default=None)
    progress: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        count(self.num_warmup, "num_warmup", 0)
        count(self.num_samples, "num_samples")
        if self.num_chains is not None:
            count(self.num_chains, "num_chains")
        if not callable(self.sampler):
            one_of(self.sampler, "sampler", (*_SAMPLERS, _SUBSAMPLING))

    def run(self, rng_key: RngKey, numpyro_model: NumpyroModel, data: Data) -> Posterior:
        """Draw; see `AbstractInference.run`.

        Raises:
            TypeError: If `sampler` is a function that does not return a sampler of NumPyro.
            ValueError: If `num_chains` does not fit an ensemble, or the model has no plate for "hmcecs".
            kpp.inference.ConvergenceError: If "hmcecs" does not find the mode.
        """
        sites = inspect_sites(numpyro_model, data)
        if (fixed := without_latents(numpyro_model, data, sites, "MCMC")) is not None:
            return fixed
        kernel = self._kernel(rng_key, numpyro_model, data, sites)
        num_chains = self._settle_chains(kernel, sites)
        subsampling = isinstance(kernel, numpyro.infer.HMCECS)
        names = next((names for cls, names in _STATISTICS.items() if isinstance(kernel, cls)), {})
        mcmc = numpyro.infer.MCMC(
            kernel,
            num_warmup=self.num_warmup,
            num_samples=self.num_samples,
            num_chains=num_chains,
            chain_method="vectorized" if kernel.is_ensemble_kernel else "sequential",
            progress_bar=self.progress,
            jit_model_args=True,
        )
        with jax.numpy_rank_promotion("allow"):  # NumPyro's samplers broadcast arrays of different ranks
            mcmc.run(rng_key, data, extra_fields=(*names, _ENERGY) if subsampling else tuple(names))
        found, fields = mcmc.get_samples(group_by_chain=True), mcmc.get_extra_fields(group_by_chain=True)
        latent = {name: found[name] for name, site in sites.items() if site.kind == "latent"}
        samples, lp = evaluate_draws(CalledWith(numpyro_model), tuple(sites), latent, data)
        stats = {name: fields[field] for field, name in names.items()}
        self._warn(latent, stats)
        attrs: dict[str, object] = {"sampler": type(kernel).__name__, "num_warmup": self.num_warmup}
        if subsampling:
            attrs["log_density_spread"] = density_spread(numpyro_model, data, latent, fields[_ENERGY])
        return Posterior(samples, {"lp": lp, **stats}, {"inference": "MCMC"} | attrs)

    def _kernel(
        self, rng_key: jax.Array, numpyro_model: NumpyroModel, data: Data, sites: Mapping[str, Site]
    ) -> MCMCKernel:
        """Return NumPyro's sampler of the model."""
        if self.sampler == _SUBSAMPLING:
            return subsampling_nuts(jax.random.fold_in(rng_key, 1), numpyro_model, data, sites)
        build = self.sampler if callable(self.sampler) else _SAMPLERS[self.sampler]
        kernel = build(with_units(CalledWith(numpyro_model), data))
        if not isinstance(kernel, MCMCKernel):
            raise TypeError(
                "`sampler` must be a name or a function that returns a numpyro.infer.mcmc.MCMCKernel for a model, got "
                f"one that returns a {type(kernel).__name__}"
            )
        if isinstance(kernel, numpyro.infer.HMCECS):
            raise ValueError(
                "`sampler` cannot be a function that returns HMCECS, because the model that it takes holds all rows; "
                'give the name "hmcecs"'
            )
        return kernel

    def _settle_chains(self, kernel: MCMCKernel, sites: Mapping[str, Site]) -> int:
        """Return the number of chains."""
        if not kernel.is_ensemble_kernel:
            return 2 if self.num_chains is None else self.num_chains
        num_parameters = num_latent_numbers(sites)
        walkers = max(8, 2 * num_parameters) if self.num_chains is None else self.num_chains
        if walkers % 2 or walkers < _FEWEST_WALKERS:
            raise ValueError(
                f"`num_chains` must be an even number of walkers, at least {_FEWEST_WALKERS}, for the ensembles of "
                f"{type(kernel).__name__}, got {walkers}; {max(8, 2 * num_parameters)} suit this model"
            )
        return walkers

    def _warn(self, latent: Mapping[str, jax.Array], stats: Mapping[str, jax.Array]) -> None:
        diverging = int(np.sum(stats.get("diverging", 0)))
        if diverging:
            _LOGGER.warning("%d draws ended in a divergence, so that the posterior may be biased", diverging)
        if self.num_samples < _FEWEST_DRAWS:
            return
        for name, draws in latent.items():
            r_hat = np.max(numpyro.diagnostics.split_gelman_rubin(np.asarray(draws)))
            if not r_hat <= _LARGEST_R_HAT:  # also NaN, where nothing has moved
                _LOGGER.warning(
                    "the chains of the site %s disagree (R-hat is %.3g); raise `num_warmup` (it is %d) and "
                    "`num_samples` (it is %d), or use kpp.NUTS",
                    name,
                    r_hat,
                    self.num_warmup,
                    self.num_samples,
                )

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractInference, NumpyroModel, Data]]:
        yield cls(num_warmup=200, num_samples=20, progress=False), linear_regression, regression_data(rng_key)


_NUM_BLOCKS = 10  # in each step a tenth of the subsample may be drawn anew


def subsampling_nuts(rng_key: jax.Array, numpyro_model: NumpyroModel, data: Data, sites: Mapping[str, Site]) -> HMCECS:
    r"""Return NumPyro's sampler of a model with a subsampled plate, whose likelihood is corrected at the mode.

    The log likelihood of n rows is estimated from the b rows u of a subsample by

    .. math::

        \hat\ell(\theta) = \sum_{i=1}^n q_i(\theta) + \frac{n}{b} \sum_{i \in u} [\ell_i(\theta) - q_i(\theta)]
        - \tfrac12 \hat\sigma^2(\theta)

    where :math:`q_i` is the second-order expansion of :math:`\ell_i` around the mode of the posterior, and
    :math:`\hat\sigma^2` estimates the variance of the second term. Raises ValueError if no plate draws subsamples, or a
    latent site is in such a plate.

    References:
        K.-D. Dang, M. Quiroz, R. Kohn, M.-N. Tran, M. Villani (2019). Hamiltonian Monte Carlo with energy conserving
        subsampling. JMLR 20.
    """
    plates = _subsampled_plates(numpyro_model, data)
    if not plates:
        raise ValueError(
            '`sampler` "hmcecs" needs a plate whose `subsample_size` is below its size; the models of kpp with '
            "`minibatch` have one. This model has none"
        )
    local = [name for name, site in sites.items() if site.kind == "latent" and plates & set(site.plates)]
    if local:
        raise ValueError(
            f'`sampler` "hmcecs" needs latent sites outside subsampled plates, but {local[0]!r} is inside one; use '
            "kpp.NUTS"
        )
    found = MAP(progress=False).run(rng_key, numpyro_model, data).samples
    mode = {name: found[name][0, 0] for name, site in sites.items() if site.kind == "latent"}
    inner = NUTS(with_units(CalledWith(numpyro_model, subsample=True), data))
    return HMCECS(inner, num_blocks=_NUM_BLOCKS, proxy=HMCECS.taylor_proxy(mode, degree=2))


def density_spread(numpyro_model: NumpyroModel, data: Data, latent: dict[str, jax.Array], energies: jax.Array) -> float:
    """Return the standard deviation, over draws, of the log density of all rows minus the sampled one, (chain, draw).

    It is 0 if the sampler draws from the posterior itself. A large one gives a warning.
    """
    spread = float((energies - _energies(CalledWith(numpyro_model), latent, data)).std())
    if not spread < _LARGEST_SPREAD:
        _LOGGER.warning(
            "the draws may be biased: the log density of all rows minus the sampled one has a standard deviation of "
            "%.2g (%.1f is the limit); use larger subsamples, tighter priors, or kpp.NUTS",
            spread,
            _LARGEST_SPREAD,
        )
    return spread


@eqx.filter_jit
def _energies(model: CalledWith, latent: dict[str, jax.Array], data: Data) -> jax.Array:
    """Return the negative log densities of all rows in unconstrained coordinates, (chain, draw)."""

    def one(draw: dict[str, jax.Array]) -> jax.Array:
        return potential_energy(model, (data,), {}, unconstrain_fn(model, (data,), {}, draw))

    return jax.lax.map(partial(jax.lax.map, one), latent)


def _subsampled_plates(numpyro_model: NumpyroModel, data: Data) -> set[str]:
    plates: set[str] = set()

    def look(arguments: Data) -> None:
        for name, site in trace(numpyro_model, arguments, subsample=True).items():
            if site["type"] == "plate" and site["args"][0] > (site["args"][1] or site["args"][0]):
                plates.add(name)

    jax.eval_shape(look, data)
    return plates
