"""The report of a study in a browser: hostile names run nothing, and the reader finds, sorts and opens rows."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [360, 768, 1440])
def test_the_report_opens_without_faults_and_fits_the_window(open_tab, report_root, width):
    tab = open_tab(report_root)
    tab.open("report.html", width)
    assert not [*tab.faults, *tab.wide()]
