"""Studies: from a table and a TOML file to a fitted model, its explanation and a report."""

from kpp.arguments import guard_exports as _guard_exports
from kpp.study.config import StudyConfig as StudyConfig
from kpp.study.config import load_study as load_study
from kpp.study.config import parse_study as parse_study
from kpp.study.errors import StudyError as StudyError
from kpp.study.runner import run_study as run_study
from kpp.study.study_fit import StudyFit as StudyFit
from kpp.study.study_fit import load_fit as load_fit

_guard_exports(globals())
