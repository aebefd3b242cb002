"""Explanations of very many rows as jobs that go on after an interruption: `explain_to_store`, `kpp explain`."""

from kpp.arguments import guard_exports as _guard_exports
from kpp.jobs.job import explain_to_store as explain_to_store

_guard_exports(globals())
