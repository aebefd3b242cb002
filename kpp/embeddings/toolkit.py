"""More of `kpp.embeddings`, for authors of models and plugins; names may change in minor versions."""

from kpp.embeddings.means.conditional import SelectedRegularization as SelectedRegularization
from kpp.foundation.arguments import guard_exports as _guard_exports

_guard_exports(globals())
