"""More of `kpp.conversion`, for authors of models and plugins; names may change in minor versions."""

from kpp.conversion.dispatch import as_explainable as as_explainable
from kpp.conversion.dispatch import is_foreign as is_foreign
from kpp.foundation.arguments import guard_exports as _guard_exports

_guard_exports(globals())
