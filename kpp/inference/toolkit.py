"""More of `kpp.inference`, for authors of models and plugins; names may change in minor versions."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.inference.base import Site as Site
from kpp.inference.fit.draws import draw_map as draw_map
from kpp.inference.fit.draws import flatten_draws as flatten_draws
from kpp.inference.fit.draws import pseudo_evidence as pseudo_evidence
from kpp.inference.fit.draws import unflatten_draws as unflatten_draws
from kpp.inference.fit.storage import describe_inference as describe_inference
from kpp.inference.fit.storage import read_parts as read_parts
from kpp.inference.fit.storage import rebuild_inference as rebuild_inference
from kpp.inference.model import Sample as Sample

_guard_exports(globals())
