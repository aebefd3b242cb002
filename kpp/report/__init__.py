"""Reports: one self-contained HTML file on a study."""

from kpp.report.contents import Column as Column
from kpp.report.contents import DataSummary as DataSummary
from kpp.report.contents import Loo as Loo
from kpp.report.contents import ReportContents as ReportContents
from kpp.report.render import render_report as render_report
