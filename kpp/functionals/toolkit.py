"""More of `kpp.functionals`, for authors of models and plugins; names may change in minor versions."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.functionals.averages import PartialDependence as PartialDependence

_guard_exports(globals())
