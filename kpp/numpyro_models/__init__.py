"""Posteriors of any NumPyro model: functions of new rows, and pointwise log likelihoods of dependent observations."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.numpyro_models import pointwise as pointwise
from kpp.numpyro_models.dependent_site import add_pointwise as add_pointwise
from kpp.numpyro_models.row_function import PosteriorFunction as PosteriorFunction
from kpp.numpyro_models.row_function import posterior_function as posterior_function

_guard_exports(globals())
