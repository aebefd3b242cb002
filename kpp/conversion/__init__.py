"""Exact conversion of fitted models of other libraries to RKHS functions and Gaussian-process posteriors."""

from kpp.conversion.affine import rescale_inputs as rescale_inputs
from kpp.conversion.affine import rescale_outputs as rescale_outputs
from kpp.conversion.converter import AbstractConverter as AbstractConverter
from kpp.conversion.dispatch import as_gp_posterior as as_gp_posterior
from kpp.conversion.dispatch import as_rkhs_function as as_rkhs_function
from kpp.foundation.arguments import guard_exports as _guard_exports

_guard_exports(globals())
