"""NumPyro models built on kpp: Gaussian processes and kernel machines.

The models are listed in `__init__.pyi` and loaded on first use, so that the discovery of this plugin takes no time.
"""

from __future__ import annotations

import kpp
from kpp.foundation.exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)


@kpp.hookimpl
def register_kernels() -> dict[str, type]:
    """Register the kernels of this package."""
    from kpp_models import RestrictedShapleyRegularized, ShapleyRegularized

    return {kernel.__name__: kernel for kernel in (RestrictedShapleyRegularized, ShapleyRegularized)}


@kpp.hookimpl
def register_models() -> dict[str, type]:
    """Register the models of this package."""
    names = "CMP BaggGP CentroidGP VBagg IME IMP BayesIME BayesIMP SamplingEffect ColliderRegression ColliderRidge"
    names += " GPGP PGP PreferenceGP PreferenceLogistic PreferenceRidge RankingGP"
    names += " GeneralizedGP GPClassification GPRegression KernelLogistic KernelRidge MultiLatentGP"
    return {name: __getattr__(name) for name in names.split()}
