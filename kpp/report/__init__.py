"""Reports: one self-contained HTML file on a study or on an explanation."""

from kpp.arguments import guard_exports as _guard_exports
from kpp.report.contents import Column as Column
from kpp.report.contents import DataSummary as DataSummary
from kpp.report.contents import Loo as Loo
from kpp.report.contents import ReportContents as ReportContents
from kpp.report.explanation_report import render_explanation as render_explanation
from kpp.report.render import render_report as render_report
from kpp.report.rows import Predicted as Predicted

_guard_exports(globals())
