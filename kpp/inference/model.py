"""The contract of a model: a NumPyro model function, and methods for one draw of its posterior."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from kpp.data.tables import Schema
from kpp.foundation.modules import AbstractModule
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.inference.base import AbstractInference
from kpp.inference.fit.fit import Fit
from kpp.inference.methods.nuts import NUTS
from kpp.kernels.toolkit import check_kernel_fields
from kpp.runtime.forks import refuse_forked_process
from kpp.runtime.programs import release_programs
from kpp.typing import Points, RngKey

Sample = Mapping[str, jax.Array]
Data = Mapping[str, Any]


class AbstractModel(AbstractModule):
    r"""A probabilistic model that can be fitted, used for prediction, and explained.

    A field that holds a NumPyro distribution is a prior: `kpp.sample` draws it in `numpyro_model`, and
        `kpp.priors.substitute` replaces it by the drawn value in the other methods. All methods except `numpyro_model`,
        `prepare` and `fit` work on **one** draw and must be traceable by JAX; `Fit` maps them over chains and draws.

    The data are a dict of pytrees of arrays whose keys are the arguments of `numpyro_model`. Arguments with the default
    None are the observations: without them the model draws from the prior predictive.
    """

    #: Whether data determine the hyperparameters so weakly that predictions at their mode alone are much too certain.
    #: `Fit` then warns where it predicts after `kpp.MAP`.
    needs_draws_of_hyperparameters: ClassVar[bool] = False

    #: The latent sites that are values of a function or points at which it has them, not parameters. They are in the
    #: group latent of `Fit.idata`; the group posterior has the others.
    latent_sites: ClassVar[tuple[str, ...]] = ()

    def __check_init__(self) -> None:
        """Raise TypeError if a field called ``kernel`` or ``..._kernel`` holds anything but a kernel or None."""
        check_kernel_fields(self)

    @abc.abstractmethod
    def numpyro_model(self, *args: Any, **kwargs: Any) -> None:
        """The NumPyro model, a plain model function that can also be used with NumPyro directly.

        The likelihood is a distribution on an ``obs=`` site. Subclasses name their arguments, for example
        ``numpyro_model(self, x, y=None)``.
        """

    @abc.abstractmethod
    def prepare(
        self, x: Any, y: Any, *args: Any, **options: Any
    ) -> tuple[AbstractModel, dict[str, Any], Schema | None]:
        """Validate data and resolve feature names.

        Args:
            x: Points, an array (n, d) or a data frame, or another type that the model accepts.
            y: Targets; None if `x` holds them, as some models allow.
            *args: Further data; a subclass that takes only x and y may leave these out.
            **options: Further options of the model's `fit`.

        Returns:
            The model to use from now on (with feature names resolved to columns), the data, and the schema of the
            points (None if they are not a table).

        Raises:
            ValueError: If the data are invalid; the message names the argument, the value received and the value
                needed.
        """

    def read_points(self, x: Any, schema: Schema | None) -> Any:
        """Read points to predict at, in the form that `Fit.predict` and `Fit.sample_predictive` accept.

        Args:
            x: The points.
            schema: The schema that `prepare` returned.

        Returns:
            The points in the form that `predictive` takes. By default they are a table with the columns of the schema
            or, without a schema, any pytree of arrays.

        Raises:
            ValueError: If the points do not match the training data.
        """
        return jax.tree.map(jnp.asarray, x) if schema is None else jnp.asarray(schema.read(x))

    @abc.abstractmethod
    def log_likelihood(self, sample: Sample, data: Data) -> dict[str, jax.Array]:
        """Return the pointwise log-likelihood of one draw, by observed site, each of shape (n,).

        If the observations are dependent given the draw, as under a marginal Gaussian process, these are the
        leave-one-out log predictive densities, so that ArviZ counts n observations.
        """

    @abc.abstractmethod
    def predictive(self, sample: Sample, data: Data, x: Points, *, covariance: bool = False) -> dict[str, jax.Array]:
        """Return moments of the prediction at p points under one draw.

        Args:
            sample: One draw.
            data: The data.
            x: The p points.
            covariance: Whether to compute ``latent_covariance``.

        Returns:
            Some of ``mean``, ``latent_variance``, ``noise_variance``, ``probability``, each of shape (p,), and
            ``latent_covariance`` of shape (p, p).
        """

    @abc.abstractmethod
    def draw_predictive(self, rng_key: RngKey, sample: Sample, data: Data, x: Points) -> jax.Array:
        """Return one draw of new observations at p points, given the data and one draw of the sites; shape (p,)."""

    def replicate(self, rng_key: RngKey, sample: Sample, data: Data) -> dict[str, jax.Array]:
        """Return one draw of replicated training observations, by observed site.

        They are conditioned on the data and one draw of the sites. By default they are `draw_predictive` at the
        training points ``data["x"]``, for the first site of `log_likelihood`. A model whose observations do not belong
        to single points overrides this method.
        """
        if "x" not in data:
            return {}
        site = next(iter(jax.eval_shape(lambda: self.log_likelihood(sample, data))))
        return {site: self.draw_predictive(rng_key, sample, data, data["x"])}

    def pointwise(
        self, rng_key: RngKey, sample: Sample, data: Data
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        """Return `log_likelihood` and `replicate` of one draw; a model whose methods share work overrides this."""
        return self.log_likelihood(sample, data), self.replicate(rng_key, sample, data)

    def latent_values(self, sample: Sample, data: Data) -> dict[str, jax.Array]:
        """Return the values of the function at the observations if a draw determines them; by default none.

        They are in the group latent of `Fit.idata` under the names returned here.
        """
        return {}

    @abc.abstractmethod
    def function_draw(self, sample: Sample, data: Data) -> RKHSFunction:
        """Return the prediction under one draw as a function with ``batch_shape`` ()."""

    def posterior_draw(self, sample: Sample, data: Data) -> GPPosterior:
        """Return the Gaussian posterior of the function under one draw of the hyperparameters.

        Law: its mean is `function_draw`, and its covariances are the ``latent_covariance`` of `predictive`.

        Args:
            sample: One draw.
            data: The data.

        Returns:
            The posterior, with ``batch_shape`` ().

        Raises:
            TypeError: If the model has no Gaussian posterior of the function; this is the default.
        """
        raise TypeError(
            f"{type(self).__name__} has no Gaussian posterior of the function, only draws of it by `function_draw`; "
            "kpp_models.GPRegression and kpp_models.GPClassification have one"
        )

    @property
    def positive_class(self) -> Any:
        """The label whose probability is predicted; None if the targets are no labels."""
        return None

    @property
    def has_function_posterior(self) -> bool:
        """Whether the model defines `posterior_draw`, of a function with one output."""
        return type(self).posterior_draw is not AbstractModel.posterior_draw

    @property
    def has_posterior_of_outputs(self) -> bool:
        """Whether the model defines `posterior_draw`, of a function with several outputs."""
        return False

    @property
    def observes_points(self) -> bool:
        """Whether every observation is of one point, and its held-out law follows from the posterior at that point."""
        return False

    def site_dims(self, data: Data) -> dict[str, tuple[str, ...]]:
        """Return names for the axes of sites that are neither feature axes nor plates; by site, one name per axis.

        By default an axis of length d is called ``feature`` and any other ``<site>_feature``.
        """
        return {}

    def predictive_dims(self) -> dict[str, tuple[str, ...]]:
        """Return names for the axes after that of the points, of quantities of `predictive` and of observations ``y``.

        By default there are no other axes.
        """
        return {}

    def coordinates(self) -> dict[str, Sequence[Any]]:
        """Return the names along axes of sites, observations and predictions, by axis; by default they are numbers."""
        return {}

    def fit(
        self,
        rng_key: RngKey,
        x: Any,
        y: Any = None,
        *,
        inference: AbstractInference | None = None,
        num_prior_samples: int = 100,
        **options: Any,
    ) -> Fit:
        """Fit the model.

        Args:
            rng_key: A JAX random key.
            x: Points, an array (n, d) or a data frame.
            y: Targets; None if `x` holds them, as some models allow.
            inference: The inference; `kpp.NUTS()` by default.
            num_prior_samples: The number of draws in the groups prior and prior_predictive; 0 leaves these groups out,
                which saves time if one evaluation of the model is slow.
            **options: Options of the model's `prepare`.

        Returns:
            The fit.

        Raises:
            TypeError: If `rng_key` is not a JAX random key, or `inference` is not an inference.
            ValueError: If the data are invalid.
        """
        refuse_forked_process()
        release_programs()
        inference = NUTS() if inference is None else inference
        model, data, schema = self.prepare(x, y, **options)
        return Fit.run(rng_key, model, data, schema, inference, num_prior_samples)
