"""Linear functionals of a function, and their law under the Gaussian posterior of the function."""

from kpp.functionals.averages import Average as Average
from kpp.functionals.averages import Values as Values
from kpp.functionals.functional import AbstractFunctional as AbstractFunctional
from kpp.functionals.functional import Combination as Combination
from kpp.functionals.gradient import Gradient as Gradient
from kpp.functionals.law import FunctionalLaw as FunctionalLaw
from kpp.functionals.posterior import GPPosterior as GPPosterior
