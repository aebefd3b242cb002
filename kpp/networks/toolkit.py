"""More of `kpp.networks`, for authors of models and plugins; names may change in minor versions."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.networks.images import read_image_shape as read_image_shape
from kpp.networks.networks import Trained as Trained
from kpp.networks.networks import train_ensemble as train_ensemble

_guard_exports(globals())
