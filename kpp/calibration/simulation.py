r"""Simulation-based calibration: a test whether an inference draws from the correct posteriors.

If parameters are drawn from the prior and data given them, then the true parameters and independent draws from the
posterior given these data have one distribution. The rank of the true value among the draws is therefore uniform, and
ranks that are not uniform show an error in the likelihood, the inference or both. In the same way the posterior given
observed data takes the place of the prior.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Int
from numpyro import handlers
from numpyro.infer import MCMC, NUTS
from scipy import stats

from kpp.foundation.arguments import guard_exports
from kpp.foundation.validation import as_finite_array, count
from kpp.inference import Fit, inspect_sites
from kpp.lazy.tasks import map_numbers
from kpp.runtime.batching import even_size
from kpp.runtime.handler_stack import separate_threads
from kpp.runtime.memory import check_count
from kpp.runtime.threads import num_cores
from kpp.storage import arviz_data
from kpp.typing import Numbers, RngKey

NumpyroModel = Callable[..., Any]
Values = dict[str, jax.Array]
_AGAIN = "again"  # the prefix of the sites of new data beside the observed ones

separate_threads()


class UniformityTest(NamedTuple):
    """The outcome of `uniformity_test`.

    Attributes:
        p_value: Twice the smaller of the other two, at most 1.
        chi_square_p_value: The p-value of Pearson's test over bins, which detects too many or too few ranks in any bin.
        kolmogorov_p_value: The p-value of Kolmogorov's test, which detects shifts.
        counts: The number of ranks in each bin.
    """

    p_value: float
    chi_square_p_value: float
    kolmogorov_p_value: float
    counts: Int[np.ndarray, " bins"]


class CalibrationResult(NamedTuple):
    """The outcome of `simulation_based_calibration`.

    Attributes:
        ranks: For each site the rank of the truth among the draws, from 0 to `num_draws`, (num_datasets, *event).
        num_draws: The number of draws of each posterior.
        truth: The values drawn from the prior, or from the posterior given observed data, (num_datasets, *event).

    Example:
        >>> ranks, truth = {"slope": np.arange(40) % 4}, {"slope": np.zeros(40)}
        >>> kpp.calibration.CalibrationResult(ranks, num_draws=3, truth=truth).p_value()
        1.0
    """

    ranks: dict[str, np.ndarray]
    num_draws: int
    truth: dict[str, np.ndarray]

    def tests(self, *, num_bins: int | None = None) -> dict[str, UniformityTest]:
        """Test the ranks of each coordinate of each site for uniformity.

        Args:
            num_bins: As for `uniformity_test`.

        Returns:
            The tests by site, coordinates as ``site[0]``, ``site[1]``, ...
        """
        found = {}
        for site, ranks in self.ranks.items():
            columns = ranks.reshape(ranks.shape[0], -1)
            for number, column in enumerate(columns.T):
                name = site if ranks.ndim == 1 else f"{site}[{number}]"
                found[name] = uniformity_test(column, self.num_draws, num_bins=num_bins)
        return found

    def dataset(self) -> xr.Dataset:
        """Return the ranks by site, with the dimension ``replication`` first, and the attribute ``num_draws``."""
        return _dataset(self.ranks, ("replication",)).assign_attrs(num_draws=self.num_draws)

    def to_arviz(self) -> Any:
        r"""Return an ArviZ object: ``DataTree`` with ArviZ 1.x, ``InferenceData`` with 0.x.

        The group ``prior_sbc`` holds the ranks r as numbers :math:`(r + 1/2) / (L + 1)` between 0 and 1, whose
        distribution should be uniform, and ``prior`` the values drawn from the prior. Data sets are along ``draw``, so
        that ``arviz_plots.plot_ecdf_pit`` needs no options.
        """
        scaled = {site: (ranks + 0.5) / (self.num_draws + 1) for site, ranks in self.ranks.items()}
        groups = {"prior_sbc": scaled, "prior": self.truth}
        datasets = {
            name: _dataset({site: value[None] for site, value in values.items()}, ("chain", "draw"))
            for name, values in groups.items()
        }
        return arviz_data.from_groups(datasets, {"num_draws": self.num_draws})

    def p_value(self, *, num_bins: int | None = None) -> float:
        """Return one p-value for all coordinates: the smallest times their number (Bonferroni), at most 1."""
        values = [test.p_value for test in self.tests(num_bins=num_bins).values()]
        return min(1.0, min(values) * len(values))


def _dataset(values: Mapping[str, np.ndarray], leading: tuple[str, ...]) -> xr.Dataset:
    """Return arrays by site as a dataset, with names of the leading axes and numbered coordinates."""
    dims = {
        site: (*leading, *(f"{site}_dim_{axis}" for axis in range(value.ndim - len(leading))))
        for site, value in values.items()
    }
    found = xr.Dataset({site: (dims[site], value) for site, value in values.items()})
    return found.assign_coords({dim: np.arange(size) for dim, size in found.sizes.items()})


def rank_statistics(values: Numbers, draws: Numbers) -> Int[np.ndarray, "s *event"]:
    r"""Return how many draws are below each value, :math:`\sum_l 1\{\theta_l < \theta\}`.

    Args:
        values: One value per data set, (s, *event).
        draws: The draws of each posterior, (s, L, *event).

    Returns:
        The ranks, from 0 to L, (s, *event).

    Raises:
        ValueError: If the shapes do not fit, or numbers are not finite.

    Example:
        >>> kpp.calibration.rank_statistics([0.5, 2.0], [[0.0, 1.0, 2.0], [0.0, 1.0, 3.0]])
        array([1, 2])
    """
    values, draws = (np.asarray(as_finite_array(array, name)) for array, name in ((values, "values"), (draws, "draws")))
    if draws.ndim != values.ndim + 1 or draws.shape[:1] + draws.shape[2:] != values.shape:
        raise ValueError(
            f"`draws` must have shape (s, L, *event) for `values` of shape (s, *event) = {values.shape}, got shape "
            f"{draws.shape}"
        )
    return np.sum(draws < values[:, None], axis=1)


def uniformity_test(ranks: Numbers, num_draws: int, *, num_bins: int | None = None) -> UniformityTest:
    r"""Test whether ranks are uniform on 0, ..., L.

    Args:
        ranks: The ranks, (s,).
        num_draws: L, the number of draws among which the values were ranked.
        num_bins: The number of bins of the chi-square test; by default such that ten ranks are expected in each, but
            from 2 to 20.

    Returns:
        The p-values and the counts. Expected counts are exact even if the number of bins does not divide L + 1.

    Raises:
        ValueError: If a rank is out of range, or there are fewer than two bins or more than L + 1.

    Example:
        >>> test = kpp.calibration.uniformity_test(np.arange(40) % 4, num_draws=3, num_bins=4)
        >>> test.counts
        array([10, 10, 10, 10])

    References:
        Talts, Betancourt, Simpson, Vehtari and Gelman, Validating Bayesian inference algorithms with simulation-based
        calibration, 2018, theorem 1 and section 4.
    """
    count(num_draws, "num_draws")
    ranks = np.asarray(as_finite_array(ranks, "ranks"))
    is_whole = (ranks == np.round(ranks)).all()
    if ranks.ndim != 1 or not ranks.size or not is_whole or ranks.min() < 0 or ranks.max() > num_draws:
        raise ValueError(f"`ranks` must hold integers from 0 to {num_draws} in one dimension, got {ranks!r}")
    if num_bins is None:
        num_bins = int(np.clip(ranks.size // 10, 2, min(20, num_draws + 1)))  # about ten ranks in each, or more
    ranks = ranks.astype(int)
    num_bins = count(num_bins, "num_bins", 2, most=num_draws + 1)
    bins = np.arange(num_draws + 1) * num_bins // (num_draws + 1)
    counts = np.bincount(bins[ranks], minlength=num_bins)
    expected = ranks.size * np.bincount(bins, minlength=num_bins) / (num_draws + 1)
    chi_square = float(stats.chisquare(counts, expected).pvalue)
    kolmogorov = float(stats.kstest((ranks + 0.5) / (num_draws + 1), "uniform").pvalue)
    # Bonferroni, for two tests.
    return UniformityTest(min(1.0, 2 * min(chi_square, kolmogorov)), chi_square, kolmogorov, counts)


def simulate(
    rng_key: RngKey,
    numpyro_model: NumpyroModel,
    data: Mapping[str, Any],
    num_datasets: int,
    observed: Sequence[str] = ("y",),
) -> tuple[Values, Values]:
    """Draw parameters from the prior and data given them.

    Args:
        rng_key: A JAX random key.
        numpyro_model: The model function, called as ``numpyro_model(**data)``.
        data: Its arguments without the observed data.
        num_datasets: How many times.
        observed: The sites that are data.

    Returns:
        The values of the latent sites and of the observed sites, each led by (num_datasets,).

    Raises:
        ValueError: If a site of `observed` does not exist.
    """

    def one(key: jax.Array) -> Values:
        # NumPyro broadcasts arrays of different ranks, which a strict setting of rank promotion would forbid.
        with jax.numpy_rank_promotion("allow"):
            sites = handlers.trace(handlers.seed(numpyro_model, key)).get_trace(**data)
        return {name: site["value"] for name, site in sites.items() if site["type"] == "sample"}

    found = jax.jit(jax.vmap(one))(jax.random.split(rng_key, num_datasets))
    missing = [name for name in observed if name not in found]
    if missing:
        raise ValueError(f"`observed` names {missing}, which are not sites; the sites are {sorted(found)}")
    latent = {name: value for name, value in found.items() if name not in observed}
    return latent, {name: found[name] for name in observed}


def simulation_based_calibration(
    rng_key: RngKey,
    numpyro_model: NumpyroModel,
    data: Mapping[str, Any],
    *,
    num_datasets: int = 200,
    num_draws: int = 63,
    thinning: int = 4,
    num_warmup: int = 200,
    kernel: Callable[[NumpyroModel], Any] | None = None,
    simulator: NumpyroModel | None = None,
    observed: Sequence[str] = ("y",),
    given: Fit | Mapping[str, Any] | None = None,
    datasets_per_block: int = 50,
    progress: bool = True,
) -> CalibrationResult:
    r"""Rank prior draws among posterior draws, sampled for many data sets at once.

    .. math::

        \theta \sim p(\theta), \quad y \sim p(y \mid \theta), \quad \theta_1, \dots, \theta_L \sim p(\theta \mid y)
        \quad \Rightarrow \quad \#\{l : \theta_l < \theta\} \sim U\{0, \dots, L\}

    The chains of a block of data sets are one batch (`jax.vmap`), so that small models take seconds. The blocks are
    computed by the workers of Dask if this process has a Dask client, and otherwise in as many threads as there are
    cores, with the same result. Draws of one chain are dependent, which makes extreme ranks too frequent: thin until
    the effective sample size is near L.

    With `given`, the check is conditional on observed data y° (posterior SBC):

    .. math::

        \theta \sim p(\theta \mid y^\circ), \quad y \sim p(y \mid \theta, y^\circ), \quad
        \theta_1, \dots, \theta_L \sim p(\theta \mid y^\circ, y)

    Args:
        rng_key: A JAX random key.
        numpyro_model: The model whose posterior is sampled, such as ``model.numpyro_model``.
        data: Its arguments without the observed data.
        num_datasets: How many data sets, S.
        num_draws: L, the number of draws kept of each posterior, preferably one less than a multiple of the number of
            bins.
        thinning: The interval between the draws that are kept.
        num_warmup: The number of warmup steps.
        kernel: A function from a model to a NumPyro sampler; by default `numpyro.infer.NUTS` with trees of depth at
            most 5. In a batch all chains wait for the slowest one; `numpyro.infer.HMC` with a fixed number of steps
            avoids this.
        simulator: The model that generates the data, if it differs: to check that an error is detected, or to assess an
            approximation. It must have the same sites.
        observed: The sites that are data.
        given: The observed data. A `kpp.Fit` of the model gives its draws and its data: it replicates its rows, also
            if their function is integrated out as in `kpp_models.GPRegression`, and observed and replicated rows
            together are one table. Its sites of values of a function are not ranked. The observed values by site, such
            as ``{"y": y}``, do for any model: a first chain draws from the posterior, and the new data have the same
            latent sites as the observed ones, given which both are independent.
        datasets_per_block: The largest number of data sets in a block. Another number changes the rounding of the
            chains, and so their draws.
        progress: Whether to show a progress bar.

    Returns:
        The ranks; `CalibrationResult.tests` tests them.

    Raises:
        RuntimeError: If the scheduler of Dask is gone.
        ValueError: If a site of `observed` does not exist, or a number is below 1; or if `given` has too few draws,
            values of another shape, or data that are no rows.

    References:
        Talts et al., 2018, algorithms 1 and 2; Säilynoja, Schmitt, Bürkner and Vehtari, Posterior SBC: simulation-based
        calibration checking conditional on data, 2025.
    """
    check_count(count(num_datasets, "num_datasets"), "num_datasets", num_draws)
    make = functools.partial(NUTS, max_tree_depth=5) if kernel is None else kernel
    simulate_key, sample_key = jax.random.split(rng_key)
    settings = {"num_warmup": num_warmup, "num_samples": num_draws * thinning, "thinning": thinning}
    if given is None:
        truth, seen = simulate(simulate_key, simulator or numpyro_model, data, num_datasets, observed)
    elif isinstance(given, Fit):
        if simulator is not None:
            raise ValueError("`simulator` needs `given` to be values by site: a fit replicates its own data")
        truth, seen, data = _replicate(simulate_key, given, data, num_datasets, observed)
    else:
        first = settings | {"num_samples": num_datasets * thinning}
        simulate_key, key = jax.random.split(simulate_key)
        values = _read_given(numpyro_model, data, observed, given)
        draws = jax.jit(functools.partial(_posterior, make, numpyro_model, data, first))(key, values)
        truth, seen = _continue(simulate_key, simulator or numpyro_model, data, draws, observed)
        numpyro_model = functools.partial(_observe_twice, numpyro_model, values)

    sample = jax.jit(jax.vmap(functools.partial(_posterior, make, numpyro_model, data, settings)))
    size = even_size(num_datasets, count(datasets_per_block, "datasets_per_block"))
    parts = map_numbers(
        functools.partial(_sample_block, sample, jax.random.split(sample_key, num_datasets), seen, size),
        -(-num_datasets // size),
        name="block of data sets",
        label="calibration",
        threads=num_cores(),
        progress=progress,
        compiles=True,
    )
    draws = {name: np.concatenate([part[name] for part in parts])[:num_datasets] for name in parts[0]}
    ranks = {name: rank_statistics(value, draws[name]) for name, value in truth.items()}
    return CalibrationResult(ranks, num_draws, {name: np.asarray(value) for name, value in truth.items()})


def _replicate(
    rng_key: RngKey, fit: Fit, data: Mapping[str, Any], num_datasets: int, observed: Sequence[str]
) -> tuple[Values, Values, dict[str, Any]]:
    """Return draws of a fit, and for each its rows beside replicated ones: the observations, and all other data."""
    total = fit.num_chains * fit.num_draws
    if total < num_datasets:
        raise ValueError(f"`given` must have at least {num_datasets} draws (`num_datasets`), got a fit with {total}")
    pick_key, draw_key = jax.random.split(rng_key)
    picked = jax.random.permutation(pick_key, total)[:num_datasets]
    draws = {name: value.reshape(-1, *value.shape[2:])[picked] for name, value in fit.draws.items()}
    values = {name: jnp.asarray(fit.data[name]) for name in observed if name in fit.data}
    shapes = {name: value.shape for name, value in values.items()}

    @jax.jit
    def replicate(data: Mapping[str, Any]) -> Values:
        keys = jax.random.split(draw_key, num_datasets)
        return jax.lax.map(lambda args: fit.model.replicate(*args, data), (keys, draws))

    found = jax.eval_shape(replicate, fit.data)
    rows = {shape[:1] for shape in (*shapes.values(), *map(np.shape, jax.tree.leaves(data)))}
    if shapes != {name: value.shape[1:] for name, value in found.items()} or len(rows) != 1 or () in rows:
        raise ValueError(
            f"`given` must be a fit to rows that it can replicate, and `data` and the sites {list(observed)} arrays "
            f"with these rows, got a {type(fit.model).__name__} that replicates {list(found)}, with data of "
            f"{sorted(shape[0] if shape else 1 for shape in rows)} rows; give the observed values by site"
        )
    # Each row is followed by its replicate, so that sorted rows stay sorted.
    seen = {
        name: jnp.stack([jnp.broadcast_to(values[name], new.shape), new.astype(values[name].dtype)], axis=2).reshape(
            num_datasets, -1, *new.shape[2:]
        )
        for name, new in replicate(fit.data).items()
    }
    names = [name for name, site in inspect_sites(fit.model.numpyro_model, fit.data).items() if site.kind == "latent"]
    truth = {name: draws[name] for name in names if name not in fit.model.latent_sites}
    return truth, seen, jax.tree.map(lambda leaf: jnp.repeat(jnp.asarray(leaf), 2, axis=0), dict(data))


def _read_given(
    model: NumpyroModel, data: Mapping[str, Any], observed: Sequence[str], given: Mapping[str, Any]
) -> Values:
    """Return the observed values by site, or raise ValueError if sites or shapes are not those of the model."""
    shapes = {name: site.shape for name, site in inspect_sites(lambda: model(**data), {}).items() if name in observed}
    values = {name: as_finite_array(value, f"given[{name!r}]") for name, value in given.items()}
    if {name: value.shape for name, value in values.items()} != shapes:
        raise ValueError(
            f"`given` must hold the values of the sites of `observed`, with shapes {shapes}, got "
            f"{ ({name: value.shape for name, value in values.items()}) }"
        )
    return values


def _continue(
    rng_key: RngKey, model: NumpyroModel, data: Mapping[str, Any], draws: Values, observed: Sequence[str]
) -> tuple[Values, Values]:
    """Return draws of the latent sites, and new data given each of them, under the names of `_observe_twice`."""

    def one(key: jax.Array, draw: Values) -> tuple[Values, Values]:
        return simulate(key, handlers.condition(model, draw), data, 1, observed)

    keys = jax.random.split(rng_key, len(next(iter(draws.values()))))
    latent, seen = jax.tree.map(lambda value: value[:, 0], jax.jit(jax.vmap(one))(keys, draws))
    return latent, {f"{_AGAIN}/{name}": value for name, value in seen.items()}


def _observe_twice(model: NumpyroModel, values: Values, **data: Any) -> None:
    """A NumPyro model of observed data and of new data that have the same latent sites."""
    with handlers.trace() as sites:
        handlers.condition(model, values)(**data)
    latent = {name: site["value"] for name, site in sites.items() if site["type"] == "sample" and name not in values}
    new = [f"{_AGAIN}/{name}" for name in values]
    with handlers.block(hide_fn=lambda site: site["name"] not in new), handlers.scope(prefix=_AGAIN):
        handlers.substitute(model, latent)(**data)


def _posterior(
    make: Callable[[NumpyroModel], Any],
    model: NumpyroModel,
    data: Mapping[str, Any],
    settings: Mapping[str, int],
    key: jax.Array,
    values: Values,
) -> Values:
    """Return the draws of one chain given one data set."""
    sampler = MCMC(make(handlers.condition(model, values)), progress_bar=False, **settings)
    with jax.numpy_rank_promotion("allow"):
        sampler.run(key, **data)
    samples: Values = sampler.get_samples()
    return samples


def _sample_block(
    sample: Callable[[jax.Array, Values], Values], keys: jax.Array, seen: Values, size: int, number: int
) -> dict[str, np.ndarray]:
    """Return the draws of a block of data sets; the last block is filled up, so that there is one compiled program."""
    chosen = np.minimum(number * size + np.arange(size), len(keys) - 1)
    draws = sample(keys[chosen], {name: value[chosen] for name, value in seen.items()})
    return {name: np.asarray(value) for name, value in draws.items()}


guard_exports(globals())
