"""Kernels of finite rank, for data with many rows: features, landmarks, and functions compressed to few points."""

from kpp.features.base import AbstractFeatureKernel as AbstractFeatureKernel
from kpp.features.compression import Compressed as Compressed
from kpp.features.compression import compress as compress
from kpp.features.fourier import RandomFourier as RandomFourier
from kpp.features.hilbert import HilbertSpace as HilbertSpace
from kpp.features.landmarks import Landmarks as Landmarks
from kpp.features.landmarks import landmarks as landmarks
from kpp.features.nystrom import Nystrom as Nystrom
from kpp.features.preference import GeneralizedPreferentialFeatures as GeneralizedPreferentialFeatures
from kpp.features.preference import PreferentialFeatures as PreferentialFeatures
from kpp.foundation.arguments import guard_exports as _guard_exports

_guard_exports(globals())
