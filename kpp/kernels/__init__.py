"""Kernels: the interface, the built-in kernels, their combinations, and kernels of some of the features."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.kernels.base import AbstractKernel as AbstractKernel
from kpp.kernels.base import AbstractProductKernel as AbstractProductKernel
from kpp.kernels.by_feature import ProductKernel as ProductKernel
from kpp.kernels.by_feature import Selected as Selected
from kpp.kernels.by_feature import resolve_features as resolve_features
from kpp.kernels.composite import Product as Product
from kpp.kernels.composite import Scaled as Scaled
from kpp.kernels.composite import Sum as Sum
from kpp.kernels.defaults import default_kernel as default_kernel
from kpp.kernels.heuristics import median_heuristic as median_heuristic
from kpp.kernels.pairs.contextual import Contextual as Contextual
from kpp.kernels.pairs.contextual import Kronecker as Kronecker
from kpp.kernels.pairs.preference import GeneralizedPreferential as GeneralizedPreferential
from kpp.kernels.pairs.preference import PairProduct as PairProduct
from kpp.kernels.pairs.preference import Preferential as Preferential
from kpp.kernels.pairs.preference import SkewSymmetrized as SkewSymmetrized
from kpp.kernels.parameters import check_non_negative as check_non_negative
from kpp.kernels.parameters import parameter as parameter
from kpp.kernels.parameters import scalar as scalar
from kpp.kernels.points.bag_mean import BagMean as BagMean
from kpp.kernels.points.bag_mean import pad_bags as pad_bags
from kpp.kernels.points.categorical import Categorical as Categorical
from kpp.kernels.points.deep import ApplyFn as ApplyFn
from kpp.kernels.points.deep import DeepKernel as DeepKernel
from kpp.kernels.points.deep import network_priors as network_priors
from kpp.kernels.points.matern import Matern as Matern
from kpp.kernels.points.nonstationary import Constant as Constant
from kpp.kernels.points.nonstationary import Linear as Linear
from kpp.kernels.points.nonstationary import Polynomial as Polynomial
from kpp.kernels.points.nuclear_dominant import NuclearDominant as NuclearDominant
from kpp.kernels.points.projected import Projected as Projected
from kpp.kernels.points.stationary import RBF as RBF
from kpp.kernels.points.stationary import Matern12 as Matern12
from kpp.kernels.points.stationary import Matern32 as Matern32
from kpp.kernels.points.stationary import Matern52 as Matern52
from kpp.kernels.points.stationary import Periodic as Periodic
from kpp.kernels.points.stationary import RationalQuadratic as RationalQuadratic

_guard_exports(globals())
