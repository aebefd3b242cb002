"""A fit of kpp behind the transformers of a pipeline, with all of its draws."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp_converters.scikit_learn.pipelines import Wrapped


@dataclasses.dataclass(frozen=True)
class WrappedFit:
    """The part of a `kpp.Fit` that explainers use, for a model whose last step holds the fit of a Gaussian process."""

    fit: Any
    wrapped: Wrapped  # what stands around its estimator
    schema: None = None

    @property
    def fixed_sites(self) -> tuple[str, ...]:
        """The sites that have one value in all draws."""
        return self.fit.fixed_sites

    def function(self) -> RKHSFunction:
        """Return the prediction as a function of the points before any step, with draws."""
        return self.wrapped.wrap(self.fit.function())

    def function_posterior(self, *, at: Any = "draws") -> GPPosterior:
        """Return the posterior of this function; see `kpp.Fit.function_posterior`."""
        return self.wrapped.wrap(self.fit.function_posterior(at=at))

    def predict(self, x: np.ndarray) -> Any:
        """Return what the fit predicts, at points before any step and for targets after all of theirs."""
        for step in self.wrapped.steps:
            x = step.transform(x)
        return self.fit.predict(x)
