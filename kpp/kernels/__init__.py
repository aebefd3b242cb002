"""Kernels: how they are written, combined, and restricted to some of their features."""

from kpp.kernels.base import AbstractKernel as AbstractKernel
from kpp.kernels.base import AbstractProductKernel as AbstractProductKernel
from kpp.kernels.categorical import Categorical as Categorical
from kpp.kernels.composite import Product as Product
from kpp.kernels.composite import ProductKernel as ProductKernel
from kpp.kernels.composite import Scaled as Scaled
from kpp.kernels.composite import Sum as Sum
from kpp.kernels.deep import ApplyFn as ApplyFn
from kpp.kernels.deep import DeepKernel as DeepKernel
from kpp.kernels.deep import network_priors as network_priors
from kpp.kernels.heuristics import median_heuristic as median_heuristic
from kpp.kernels.nonstationary import Constant as Constant
from kpp.kernels.nonstationary import Linear as Linear
from kpp.kernels.nonstationary import Polynomial as Polynomial
from kpp.kernels.nuclear_dominant import NuclearDominant as NuclearDominant
from kpp.kernels.parameters import check_non_negative as check_non_negative
from kpp.kernels.parameters import check_positive as check_positive
from kpp.kernels.parameters import parameter as parameter
from kpp.kernels.selection import Selected as Selected
from kpp.kernels.selection import resolve_features as resolve_features
from kpp.kernels.stationary import RBF as RBF
from kpp.kernels.stationary import Matern12 as Matern12
from kpp.kernels.stationary import Matern32 as Matern32
from kpp.kernels.stationary import Matern52 as Matern52
from kpp.kernels.stationary import Periodic as Periodic
from kpp.kernels.stationary import RationalQuadratic as RationalQuadratic
