"""The result of fitting a model: named draws, predictions, functions, and saving to a file."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from kpp.data.tables import Schema
from kpp.foundation.validation import count, one_of
from kpp.functionals import AbstractFunctional, FunctionalLaw, GPPosterior
from kpp.functions import RKHSFunction
from kpp.inference.base import AbstractInference, NumpyroModel, Posterior, Site, as_arguments, inspect_sites
from kpp.inference.fit import per_draw
from kpp.inference.fit.arviz_groups import (
    LATENT,
    Naming,
    constant_group,
    data_groups,
    join_draws,
    posterior_groups,
    prior_groups,
)
from kpp.inference.fit.draws import DrawMap, check_draws, draw_map, flatten_draws, num_rows, unflatten_draws
from kpp.inference.fit.storage import read_parts, write_fit
from kpp.inference.methods.discrete import infer_all
from kpp.inference.notebook import fit_html
from kpp.kernels import AbstractKernel
from kpp.kernels.by_feature import names_of_sites
from kpp.runtime.forks import refuse_forked_process
from kpp.runtime.memory import check_count, check_matrices
from kpp.runtime.programs import release_programs
from kpp.runtime.threads import one_blas_thread
from kpp.storage import arviz_data
from kpp.typing import AnyArray, RngKey

_LOGGER = logging.getLogger("kpp")
# The draws of "few" posteriors, and the largest number of entries of their roots, 240 MB.
_FEW_DRAWS, _FEW_NUMBERS = 100, 3 * 10**7
_PREDICTIVE_DIMS = {"latent_covariance": ("instance_other",), "level_probability": ("level",)}


@dataclasses.dataclass(frozen=True, repr=False)
class Fit:
    """A fitted model: the draws, the data they are conditioned on, and the predictions that follow from both.

    Args:
        model: The model, an `AbstractModel`, with feature names resolved.
        arviz: An ArviZ object, what makes one when `idata` is first read, or None.
        data: The training data by argument of the NumPyro model.
        schema: The names of the features and their levels; None if the points are not a table.
        draws: The draws by site, of shape (chain, draw, *event).
        inference: The inference that made the draws.
        state: Arrays from which the inference can continue or draw again.

    Example:
        >>> fit.predict(x[:2])["mean"].values.round(2)
        array([[[0.1 , 0.65]]])
    """

    model: Any
    arviz: Any
    data: dict[str, Any]
    schema: Schema | None
    draws: dict[str, jax.Array]
    inference: AbstractInference
    state: dict[str, jax.Array] = dataclasses.field(default_factory=dict)

    @classmethod
    @one_blas_thread()
    def run(
        cls,
        rng_key: RngKey,
        model: Any,
        data: dict[str, Any],
        schema: Schema | None,
        inference: AbstractInference,
        num_prior_samples: int = 100,
    ) -> Fit:
        """Fit a model to data that its `prepare` has returned; `AbstractModel.fit` calls this.

        Args:
            rng_key: A JAX random key.
            model: An `AbstractModel`.
            data: Its data.
            schema: The schema of its points.
            inference: The inference method.
            num_prior_samples: The number of draws in the groups prior and prior_predictive; 0 leaves them out.

        Returns:
            The fit.

        Raises:
            ValueError: If `num_prior_samples` is negative.
        """
        check_draws(count(num_prior_samples, "num_prior_samples", 0), "num_prior_samples", data)
        check_draws(getattr(inference, "num_samples", 1), "num_samples", data)
        keys = jax.random.split(rng_key, 3)
        fit = cls(model, None, data, schema, {}, inference)
        posterior = fit._infer(keys[0], lambda numpyro_model: inference.run(keys[0], numpyro_model, data))
        groups = _Groups(posterior, keys[1], keys[2], num_prior_samples)
        return dataclasses.replace(fit, arviz=groups, draws=posterior.samples, state=posterior.state)

    @functools.cached_property
    def idata(self) -> Any:
        """The ArviZ object (`InferenceData` or `DataTree`), made when it is first read.

        Its groups are posterior, latent (the sampled values of the function), sample_stats, log_likelihood (pointwise),
        log_prior (of the sites in posterior), posterior_predictive, observed_data, constant_data, prior and
        prior_predictive. Its attributes are those of the fit, `attrs`.
        """
        return self.arviz.make(self) if isinstance(self.arviz, _Groups) else self.arviz

    @property
    def attrs(self) -> dict[str, Any]:
        """What the inference recorded, such as ``divergences`` or ``modes``: the attributes of `idata`."""
        if isinstance(self.arviz, _Groups):
            return {**self.arviz.posterior.attrs, "model": type(self.model).__name__}
        return {} if self.arviz is None else dict(self.arviz.attrs)

    @property
    def num_chains(self) -> int:
        """The number of chains."""
        return self._shape[0]

    @property
    def num_draws(self) -> int:
        """The number of draws of each chain."""
        return self._shape[1]

    def __repr__(self) -> str:
        return (
            f"Fit({type(self.model).__name__} by {type(self.inference).__name__}: {self.num_chains} chains of "
            f"{self.num_draws} draws, sites {list(self.draws)})"
        )

    def _repr_html_(self) -> str:
        """Return a summary for notebooks."""
        return fit_html(self)

    def predict(
        self, x: Any, *, covariance: bool = False, batch_size: int | None = None, unseen: str = "error"
    ) -> xr.Dataset:
        """Predict at p points, for every draw.

        Args:
            x: The points, an array (p, d) or a data frame with the columns of the training data.
            covariance: Whether to add ``latent_covariance``, (chain, draw, instance, instance_other).
            batch_size: The number of draws computed at the same time; by default one after the other.
            unseen: For levels of a category in a data frame that the training data do not have: "error" raises
                ValueError, "prior" predicts for each of them as for a category without observations, which has the
                `correlation` of `kpp.kernels.Categorical` with all other levels, by default 0.

        Returns:
            The quantities among ``mean``, ``latent_variance`` (epistemic), ``noise_variance``, ``response_mean``,
            ``probability`` and ``level_probability`` (also with the dim level) that the model provides, with dims
            (chain, draw, instance). The attribute ``class`` of ``probability`` is the
            label that it belongs to.

        Raises:
            ValueError: If `x` does not fit the training data: columns missing, unknown levels, wrong shape, NaN.
        """
        points = self._read(x, unseen)
        if covariance:
            advice = "leave `covariance` out, or give fewer points or draws"
            check_matrices(len(self._numbers), num_rows(points), "`latent_covariance` of all draws", advice)
        shared = (self._arguments, self.data, points, covariance)
        values = self._over_draws(per_draw.predict, shared, "predict", batch_size)
        further = {**_PREDICTIVE_DIMS, **self.model.predictive_dims()}
        dims = {name: ("instance", *further.get(name, ())) for name in values}
        predicted = self._naming.draws(unflatten_draws(values, self._shape), dims)
        if "probability" in predicted and self.model.positive_class is not None:
            predicted["probability"].attrs["class"] = str(self.model.positive_class)
        return predicted

    def sample_predictive(self, rng_key: RngKey, x: Any, num_samples: int, *, unseen: str = "error") -> xr.DataArray:
        """Draw new observations at p points from the posterior predictive, which is conditioned on the training data.

        Args:
            rng_key: A JAX random key.
            x: The points, as for `predict`.
            num_samples: The number of draws. Each uses one draw of the posterior; none is used twice unless
                `num_samples` exceeds the number of posterior draws.
            unseen: As for `predict`.

        Returns:
            The draws, with dims (sample, instance), and those of an observation if it is not one number.
        """
        pick_key, draw_key = jax.random.split(rng_key)
        total = self.num_chains * self.num_draws
        points = self._read(x, unseen)
        check_count(count(num_samples, "num_samples"), "num_samples", num_rows(points))
        keys = jax.random.split(pick_key, -(-num_samples // total))
        picked = jax.vmap(lambda key: jax.random.permutation(key, total))(keys).ravel()[:num_samples]

        chosen = {name: value[picked] for name, value in flatten_draws(self.draws).items()}
        label = "predictive draws" if self.inference.progress else None
        shared = (self._arguments, self.data, points, draw_key)
        values = draw_map(per_draw.draw_predictive)(chosen, jnp.arange(num_samples), shared, label=label)
        dims = ("sample", "instance", *self.model.predictive_dims().get("y", ()))
        return self._naming.dataset({"y": values}, {"y": dims})["y"]

    def with_predictions(self, rng_key: RngKey, x: Any, *, unseen: str = "error") -> Fit:
        """Add ArviZ's groups ``predictions`` and ``predictions_constant_data`` for p new points.

        Args:
            rng_key: A JAX random key.
            x: The points, as for `predict`.
            unseen: As for `predict`.

        Returns:
            The fit, whose `idata` also holds one draw of new observations ``y`` for each draw of the posterior, with
            dims (chain, draw, instance) and those of an observation, and the points ``x``. Earlier predictions are
            replaced.

        Raises:
            ValueError: If `x` does not fit the training data.
        """
        points = self._read(x, unseen)
        shared = (self._arguments, self.data, points, rng_key)
        values = unflatten_draws(self._over_draws(per_draw.draw_predictive, shared, "predictions"), self._shape)
        dims = ("instance", *self.model.predictive_dims().get("y", ()))
        naming = Naming(self._naming.feature_names, values.shape[2], coordinates=self.model.coordinates())
        found = {
            **arviz_data.groups(self.idata),
            "predictions": naming.draws({"y": values}, {"y": dims}),
            "predictions_constant_data": constant_group({"x": points}, naming),
        }
        return dataclasses.replace(self, arviz=arviz_data.from_groups(found, self.attrs))

    def with_attrs(self, attrs: Mapping[str, Any]) -> Fit:
        """Return the fit with other `attrs`."""
        return dataclasses.replace(self, arviz=arviz_data.from_groups(arviz_data.groups(self.idata), attrs))

    def function(self) -> RKHSFunction:
        """Return the prediction as a function in the RKHS, with ``batch_shape`` (chain, draw).

        It is unfolded (`RKHSFunction.unfold`), so that explainers can take its kernel apart.
        """
        return self._function(unfolded=True)

    @property
    def output_names(self) -> tuple[str, ...] | None:
        """The names of the outputs of `function`, such as classes; None if they have no names."""
        coordinates = self.model.coordinates()
        names = coordinates.get("output", coordinates.get("latent"))
        return None if names is None else tuple(map(str, names))

    @property
    def has_function_posterior(self) -> bool:
        """Whether the model has a Gaussian posterior of the function given the hyperparameters."""
        return self.model.has_function_posterior

    @functools.cached_property
    def fixed_sites(self) -> tuple[str, ...]:
        """The latent sites with the same value in all draws: after `kpp.MAP`, or of others than the inducing values.

        They are empty for a model whose hyperparameters are all given.
        """
        latent = [name for name, site in self._sites.items() if site.kind == "latent" and name in self.draws]
        values = {name: np.asarray(self.draws[name]) for name in latent}
        return tuple(name for name, value in values.items() if (value == value[:1, :1]).all())

    def function_posterior(self, *, at: str | Sequence[int] | np.ndarray = "draws") -> GPPosterior:
        """Return the Gaussian posterior of the function given the hyperparameters.

        Args:
            at: "draws" for one posterior per draw, whose roots take ``draws * n * n`` numbers; "mean" for one posterior
                at the posterior means of all sites, which ignores the uncertainty of the hyperparameters; "few" for
                those of at most 100 draws at even steps, fewer if their roots have more than 3e7 numbers, which the fit
                keeps; or the numbers of k draws, counted through all chains.

        Returns:
            The posterior, with ``batch_shape`` (chain, draw), or () for "mean", or (1, k) for "few" or k draws. It has
            the outputs of `function`.

        Raises:
            TypeError: If the model has no Gaussian posterior of the function.
            ValueError: If `at` is another word.
        """
        if isinstance(at, str) and one_of(at, "at", ("draws", "mean", "few")) == "few":
            return self._few_posteriors
        if isinstance(at, str) and at == "mean":
            means = {name: jnp.mean(value, (0, 1), keepdims=True) for name, value in self.draws.items()}
            return self._replace_draws(means, self.state).function_posterior().at_draw((0, 0))
        if not isinstance(at, str):
            some = {name: value[None, np.asarray(at)] for name, value in flatten_draws(self.draws).items()}
            return self._replace_draws(some, self.state).function_posterior()
        roots = self._over_draws(per_draw.roots, (self._arguments, self.data), "posteriors of the function")
        # Not unfolded: the covariance is the kernel's own.
        function = self._function(unfolded=False)
        return GPPosterior(function, *unflatten_draws(roots, self._shape))

    def of(self, functional: AbstractFunctional, names: Iterable[str] | None = None) -> FunctionalLaw:
        """Return the law of linear functionals of the latent function, over all draws of the hyperparameters.

        Args:
            functional: The functional, such as `kpp.functionals.Average`; points are rows as the model has read them
                (``fit.schema.read(table)``).
            names: Names of its numbers; with P outputs there are P for each number.

        Returns:
            The law, with the draws (chain, draw) first; its intervals and probabilities are those over all draws.

        Raises:
            TypeError: If the model has no Gaussian posterior of the function.
            ValueError: If the numbers are not defined for the functions of the model's kernel.
        """
        law = self.function_posterior().of(functional)
        return law if names is None else dataclasses.replace(law, names=tuple(names))

    def map_draws(self, f: Callable[..., Any], *arguments: Any, batch_size: int | None = None) -> Any:
        """Apply a function of one draw to all draws.

        Args:
            f: Takes the model, one draw (site -> value), the training data, and `arguments`; returns a pytree of
                arrays. It must be traceable by JAX.
            *arguments: Pytrees of arrays that all draws share.
            batch_size: The number of draws computed at the same time; by default one after the other.

        Returns:
            The results of `f`, each array with the leading axes (chain, draw).
        """
        # Only for a function of a module: the cache would keep all arrays that another one holds in memory.
        is_global = inspect.isfunction(f) and "<" not in f.__qualname__
        run = draw_map(per_draw.call, batch_size) if is_global else DrawMap(per_draw.call, batch_size)
        shared = (f, self._arguments, self.data, arguments)
        return unflatten_draws(run(flatten_draws(self.draws), self._numbers, shared), self._shape)

    def thin(self, max_draws: int) -> tuple[Fit, np.ndarray]:
        """Keep at most `max_draws` draws, evenly spaced from the first to the last of each chain.

        Each chain keeps at least one. The fit is returned with the positions of the draws, the same for all chains.
        """
        num_kept = max(1, min(self.num_draws, max_draws // self.num_chains))
        kept = np.linspace(0, self.num_draws - 1, num_kept).round().astype(int)
        return self._replace_draws({site: values[:, kept] for site, values in self.draws.items()}, self.state), kept

    def sample(self, rng_key: RngKey, num_samples: int) -> Fit:
        """Make new draws from the approximate posterior that Laplace or SVI has found.

        Args:
            rng_key: A JAX random key.
            num_samples: The number of draws.

        Returns:
            A fit with one chain of `num_samples` draws.

        Raises:
            TypeError: If the inference does not keep a distribution to draw from (NUTS, MAP).
        """
        check_draws(count(num_samples, "num_samples"), "num_samples", self.data)
        keys = jax.random.split(rng_key)
        draw = functools.partial(self.inference.draw, keys[0], num_samples, data=self.data, state=self.state)
        return self._drawn_anew(self._infer(keys[0], lambda model: draw(numpyro_model=model)), keys[1])

    @one_blas_thread()
    def resume(self, rng_key: RngKey, num_samples: int) -> Fit:
        """Continue the chains of NUTS where they stopped, with their step sizes and mass matrices.

        Args:
            rng_key: A JAX random key, different from the key of the fit.
            num_samples: Further draws of each chain.

        Returns:
            A fit with the old draws followed by the new ones.

        Raises:
            TypeError: If the inference has no chains.
        """
        check_draws(count(num_samples, "num_samples"), "num_samples", self.data)
        keys = jax.random.split(rng_key)
        resume = functools.partial(self.inference.resume, keys[0], num_samples, data=self.data, state=self.state)
        posterior = self._infer(keys[0], lambda model: resume(numpyro_model=model))
        further = self._drawn_anew(posterior, keys[1])
        joined = {name: jnp.concatenate([value, posterior.samples[name]], axis=1) for name, value in self.draws.items()}
        idata = join_draws(self.idata, further.idata, self.attrs)
        return dataclasses.replace(further, draws=joined, arviz=idata)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fit into one netCDF file, which ArviZ can open too.

        Args:
            path: The file. It appears only when it is complete; an existing one is replaced.

        Raises:
            TypeError: If the model or its kernel is not registered, so that it could not be loaded again, or a field of
                the inference cannot be written as plain JSON.
        """
        write_fit(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Fit:
        """Read a fit that `save` has written.

        Raises:
            ValueError: If the file is not a saved fit, or its inference is of a class that is not loaded.
        """
        fit = cls(**read_parts(path))
        if "kpp_note" in fit.attrs:
            _LOGGER.warning("%s: %s", os.fspath(path), fit.attrs["kpp_note"])
        return fit

    @property
    def _shape(self) -> tuple[int, int]:
        for value in self.draws.values():
            return value.shape[0], value.shape[1]
        return 1, 1

    @property
    def _numbers(self) -> jax.Array:
        return jnp.arange(self.num_chains * self.num_draws)

    @functools.cached_property
    def _arguments(self) -> Any:
        """The model as an argument of compiled functions."""
        return as_arguments(self.model)

    @functools.cached_property
    def _sites(self) -> dict[str, Site]:
        return inspect_sites(self.model.numpyro_model, self.data)

    @functools.cached_property
    def _few_posteriors(self) -> GPPosterior:
        """The posteriors of some draws; those of all draws may not fit into memory."""
        one = {name: jax.ShapeDtypeStruct(value.shape[2:], value.dtype) for name, value in self.draws.items()}
        shared = (self._arguments, self.data)
        root, _ = eqx.filter_eval_shape(per_draw.roots, one, self._numbers[0], shared)
        num_draws = min(len(self._numbers), _FEW_DRAWS, max(1, _FEW_NUMBERS // math.prod(root.shape)))
        return self.function_posterior(at=np.linspace(0, len(self._numbers) - 1, num_draws).round().astype(int))

    @functools.cached_property
    def _naming(self) -> Naming:
        names = () if self.schema is None else self.schema.feature_names
        observed = [site for site in self._sites.values() if site.kind == "observed"]
        num_rows = observed[0].shape[0] if observed and observed[0].shape else 0
        kernel = getattr(self.model, "kernel", None)
        selected = names_of_sites("kernel", kernel, names) if names and isinstance(kernel, AbstractKernel) else {}
        axes = {site: (f"{site}_feature",) for site in selected}
        coordinates = {axes[site][0]: list(features) for site, features in selected.items()}
        return Naming(
            names, num_rows, axes | self.model.site_dims(self.data), coordinates | dict(self.model.coordinates())
        )

    def _read(self, x: Any, unseen: str) -> Any:
        """Read points to predict at."""
        refuse_forked_process()
        release_programs()
        if self.model.needs_draws_of_hyperparameters and self.draws and self.num_chains * self.num_draws == 1:
            _LOGGER.warning(
                "the hyperparameters of %s are fixed at one value, so intervals of its predictions are too narrow; fit "
                "it with kpp.NUTS() or kpp.Laplace(), which draw the hyperparameters",
                type(self.model).__name__,
            )
        if self.schema is None:
            one_of(unseen, "unseen", ("error",))
            return self.model.read_points(x, None)
        return self.model.read_points(x, dataclasses.replace(self.schema, unseen=unseen))

    def _over_draws(self, f: per_draw.OfOneDraw, shared: Any, label: str, batch_size: int | None = None) -> Any:
        """Map a function of `one_draw` over the draws of this fit."""
        run = draw_map(f, batch_size)
        return run(flatten_draws(self.draws), self._numbers, shared, label=label if self.inference.progress else None)

    def _function(self, *, unfolded: bool) -> RKHSFunction:
        """Join the functions of all draws into one function with ``batch_shape`` (chain, draw)."""
        flat, shared = flatten_draws(self.draws), (self._arguments, self.data, unfolded)
        arrays, coefficients, intercept = unflatten_draws(
            draw_map(per_draw.function_parts)(flat, self._numbers, shared), self._shape
        )
        # The parts of the kernel that are no arrays; they are the same for all draws.
        one = {name: jax.ShapeDtypeStruct(value.shape[1:], value.dtype) for name, value in flat.items()}
        abstract = eqx.filter_eval_shape(per_draw.function, one, shared).kernel
        static = eqx.filter(abstract, lambda leaf: not isinstance(leaf, jax.ShapeDtypeStruct))
        points = self._shared_points(flat, shared)
        return RKHSFunction(eqx.combine(arrays, static), points, coefficients, intercept, self._shape)

    def _shared_points(self, flat: dict[str, jax.Array], shared: Any) -> Any:
        """Return the points of the function, stored once if the first and the last draw have the same points."""
        points = draw_map(per_draw.function_points)
        ends = np.asarray([0, self.num_chains * self.num_draws - 1])
        two = {name: jnp.asarray(np.asarray(value)[ends]) for name, value in flat.items()}
        both = jax.tree.map(np.asarray, points(two, jnp.asarray(ends), shared))
        if all(np.array_equal(leaf[0], leaf[1]) for leaf in jax.tree.leaves(both)):
            return jax.tree.map(lambda leaf: jnp.asarray(leaf[0], leaf.dtype), both)
        return unflatten_draws(points(flat, self._numbers, shared), self._shape)

    def _replace_draws(self, samples: dict[str, jax.Array], state: dict[str, jax.Array]) -> Fit:
        return dataclasses.replace(self, draws=samples, state=state)

    def _infer(self, rng_key: RngKey, infer: Callable[[NumpyroModel], Posterior]) -> Posterior:
        """Return the draws of all sites; the inference draws those that are not discrete."""
        key = jax.random.fold_in(rng_key, 1)  # the inference uses the key itself
        return infer_all(key, self.model.numpyro_model, self.data, self._sites, infer)

    def _drawn_anew(self, posterior: Posterior, rng_key: RngKey) -> Fit:
        """Return the fit with other draws, whose groups of data and prior are those of this fit."""
        groups = _Groups(posterior, rng_key, earlier=self)
        return dataclasses.replace(self, draws=posterior.samples, state=posterior.state, arviz=groups)

    def _pointwise_groups(self, rng_key: RngKey, naming: Naming) -> dict[str, xr.Dataset]:
        """Return the groups that are computed for each draw, in one pass over the draws."""
        latent = self.model.latent_sites
        sites = [site for name, site in self._sites.items() if name in self.draws and name not in latent]
        priors = tuple(site.name for site in sites if site.kind == "latent" and not site.discrete)
        shared = (self._arguments, self.data, rng_key, priors)
        found = self._over_draws(per_draw.pointwise, shared, "log-likelihood and predictive draws")

        def dims(group: str, name: str, value: AnyArray) -> tuple[str, ...]:
            if group == "log_likelihood":
                return ("instance",)
            if group == "log_prior":  # the axes of the site without those of one value
                return naming.of_site(self._sites[name])[: value.ndim - 2]
            return naming.of_site(Site(name, "observed", value.shape[2:], ()))

        return {
            group: naming.draws(arrays, {name: dims(group, name, value) for name, value in arrays.items()})
            for group, arrays in unflatten_draws(found, self._shape).items()
            if arrays
        }


@dataclasses.dataclass(frozen=True)
class _Groups:
    """What makes the groups of ArviZ when they are first read: few fits are asked for them, and they take a while."""

    posterior: Posterior
    rng_key: RngKey  # for the replicates
    prior_key: RngKey | None = None  # None without draws from the prior
    num_prior_samples: int = 0  # 0 leaves the groups of the prior out
    earlier: Fit | None = None  # a fit to the same data, whose groups of data and prior are taken

    def make(self, fit: Fit) -> Any:
        """Return the ArviZ object of a fit; after `Fit.thin` that of all draws."""
        if fit.draws is not self.posterior.samples:
            fit = fit._replace_draws(self.posterior.samples, fit.state)
        found = posterior_groups(self.posterior, fit._sites, fit._naming, fit.model.latent_sites)
        further = fit._pointwise_groups(self.rng_key, fit._naming)
        if LATENT in further:
            further[LATENT] = found.get(LATENT, xr.Dataset()).merge(further[LATENT])
        predicted = list(map(str, further.get("posterior_predictive", ())))
        return arviz_data.from_groups(found | further | self._fixed(fit, predicted), fit.attrs)

    def _fixed(self, fit: Fit, predicted: Collection[str]) -> dict[str, xr.Dataset]:
        """Return the groups that do not depend on the draws."""
        if self.earlier is not None:
            kept = ("observed_data", "constant_data", "prior", "prior_predictive")
            return {name: group for name, group in arviz_data.groups(self.earlier.idata).items() if name in kept}
        found = data_groups(fit.model.numpyro_model, fit.data, fit._naming, predicted)
        if self.prior_key is None or self.num_prior_samples == 0:
            return found
        drawn = prior_groups(self.prior_key, fit.model, fit.data, fit._sites, fit._naming, self.num_prior_samples)
        return found | drawn
