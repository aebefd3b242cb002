"""Regularized systems, parts and roots of matrices: for authors of models and plugins."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.linalg.ridge import AbstractRidge as AbstractRidge
from kpp.linalg.ridge import DenseRidge as DenseRidge
from kpp.linalg.ridge import FeatureRidge as FeatureRidge
from kpp.linalg.spectral import clean_spectrum as clean_spectrum
from kpp.linalg.spectral import positive_part as positive_part
from kpp.linalg.spectral import root_of_full_rank as root_of_full_rank
from kpp.linalg.spectral import symmetric_root as symmetric_root

_guard_exports(globals())
