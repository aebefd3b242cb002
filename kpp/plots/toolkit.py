"""More of `kpp.plots`, for authors of models and plugins; names may change in minor versions."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.plots.attributions.bar import scores as scores
from kpp.plots.attributions.importance import importance_order as importance_order
from kpp.plots.attributions.importance import mean_absolute as mean_absolute
from kpp.plots.intervals import IntervalKind as IntervalKind

_guard_exports(globals())
