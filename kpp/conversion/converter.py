"""The abstract class of converters: what a plugin defines to take the models of another library apart."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any

from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.typing import RngKey


class AbstractConverter(abc.ABC):
    """A converter of the fitted models of another library, which is exact or refuses.

    It is registered under the name of the library's top-level module, such as "sklearn" or "gpytorch", and is asked if
    a class of the model, or one of its base classes, comes from this module. If a model derives from classes of several
    libraries, they are asked in the order of its base classes, until one does not raise TypeError.

    A converter has no fields and is built without arguments. Its module must not import the library: methods import it,
    or need not, because the library is there if one of its models is.
    """

    @abc.abstractmethod
    def gp_posterior(self, model: Any) -> GPPosterior:
        """Return the posterior of the latent function of a Gaussian process.

        Law: mean and covariance at any points equal those of the model up to rounding: in float64 at 1e-8 of the
        largest mean, and of the largest prior variance. They are those of the function, without observation noise, on
        the scale of the model's predictions.

        Args:
            model: The fitted model; for libraries whose models do not hold their training data, a pair of a model and
                its data.

        Raises:
            TypeError: If the class of the model is not one that this converter knows, or has no such posterior. The
                converters of the model's other base classes are asked then.
            ValueError: If a part of the model cannot be represented exactly, which the message names, or if the model
                is not fitted.
        """

    def rkhs_function(self, model: Any) -> RKHSFunction:
        """Return the function that the model predicts; by default the mean of its posterior.

        Law: the values at any points equal the model's own predictions up to rounding, in float64 at 1e-8 of the
        largest.

        Args:
            model: As for `gp_posterior`.

        Returns:
            The function, of one or several outputs.

        Raises:
            TypeError: If the class of the model is not one that this converter knows.
            ValueError: If a part of the model cannot be represented exactly, which the message names, or if the model
                is not fitted.
        """
        return self.gp_posterior(model).mean

    def has_posterior(self, model: Any) -> bool:
        """Return whether `kpp.explain` takes the model as a Gaussian process, by `gp_posterior`; True by default.

        For other models it takes `rkhs_function`.

        Args:
            model: As for `gp_posterior`.
        """
        return True

    def explainable(self, model: Any) -> Any:
        """Return the predictor that `kpp.explain` takes in place of the model: its posterior if it has one.

        Args:
            model: As for `gp_posterior`.
        """
        return (self.gp_posterior if self.has_posterior(model) else self.rkhs_function)(model)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractConverter, Any, Any, Any, Any]]:
        """Yield instances for the conformance suite: (converter, model, x, mean, covariance).

        `mean`, (p,) or (p, outputs), is what the model itself predicts at the points x, (p, d), by its own library.
        `covariance`, (p, p), is its covariance of the function at x, or None if `has_posterior` is false.

        Args:
            rng_key: A JAX random key for the data.
        """
        raise NotImplementedError(
            f"{cls.__name__} must define the classmethod `examples(rng_key)`, yielding (converter, model, x, mean, "
            "covariance)"
        )
