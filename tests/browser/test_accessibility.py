"""axe-core finds no serious and no critical fault on a page of each kind and in the report, light and dark."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

#: The faults that axe-core finds: the rule, how often it is broken, and the first elements that break it.
RUN_AXE = """async () => {
    const {violations} = await axe.run({resultTypes: ["violations"]})
    return violations
        .filter(found => ["serious", "critical"].includes(found.impact))
        .map(({id, help, nodes}) => `${id} (${help}), ${nodes.length} times: ` + nodes.slice(0, 3)
            .map(node => [node.target, ...node.any.map(check => check.message)].join(" ")).join(" | "))
}"""


@pytest.fixture(scope="module")
def axe(missing) -> str:
    """The text of axe-core."""
    package = find_spec("axe_playwright_python")
    if package is None:
        missing("there is no axe-core; pip install -e '.[browser]'")
    return Path(package.origin).with_name("axe.min.js").read_text(encoding="utf-8")


def grave_faults(tab, axe: str) -> list[str]:
    tab.page.evaluate(axe)
    return tab.page.evaluate(RUN_AXE)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_of_each_kind_can_be_read_with_aids(open_tab, site_root, kinds, axe, scheme):
    tab = open_tab(site_root, color_scheme=scheme)
    faults = []
    for address in kinds.values():
        tab.open(address, 1440)
        faults += [f"{address}: {fault}" for fault in grave_faults(tab, axe)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_can_be_read_with_aids(open_tab, report_root, axe, scheme):
    tab = open_tab(report_root, color_scheme=scheme)
    tab.open("report.html", 1440)
    tab.page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true })")
    faults = grave_faults(tab, axe)
    assert not faults, "\n".join(faults)
