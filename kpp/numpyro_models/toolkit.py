"""More of `kpp.numpyro_models`, for authors of models and plugins; names may change in minor versions."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.numpyro_models.replay import read_samples as read_samples

_guard_exports(globals())
