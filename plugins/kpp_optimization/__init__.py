"""Bayesian optimization: priors on an objective, expected improvement, searches, their regret, and duels.

Names are listed in `__init__.pyi` and loaded on first use, so that finding this plugin costs nothing.
"""

from __future__ import annotations

from kpp.foundation.exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
