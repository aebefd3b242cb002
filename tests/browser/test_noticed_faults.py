"""The tab notices each kind of fault, so that a page without noticed faults is a page without faults."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.browser

FAULTY = {
    "error on the console": ("<script>console.error('broken')</script>", "broken"),
    "exception": ("<script>throw new Error('thrown')</script>", "thrown"),
    "exception in a promise": ("<script>Promise.reject(new Error('late'))</script>", "late"),
    "other host": ("<script src='https://example.org/library.js'></script>", "asks https://example.org/library.js"),
    "picture of another address": ("<img src='http://192.0.2.1/picture.png'>", "asks http://192.0.2.1/picture.png"),
    "missing file": ("<img src='picture.png'>", "404"),
    "blocked by its own policy": (
        "<meta http-equiv='Content-Security-Policy' content=\"script-src 'none'\"><script>1</script>",
        "Content Security Policy",
    ),
}


@pytest.fixture(scope="module")
def faulty_root(tmp_path_factory, serve):
    folder = tmp_path_factory.mktemp("faulty")
    for name, (page, _) in FAULTY.items():
        (folder / f"{name}.html").write_text(f"<!doctype html><html>{page}</html>", encoding="utf-8")
    boxed = "<div style='overflow: auto'><pre style='width: 800px'>boxed</pre></div>"
    wide = f"<p>short</p><div class='much' style='width: 500px'>wide</div>{boxed}"
    (folder / "wide.html").write_text(f"<!doctype html>{wide}", encoding="utf-8")
    (folder / "plain.html").write_text("<!doctype html><p>plain</p>", encoding="utf-8")
    with serve(folder) as address:
        yield address


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_is_noticed(open_tab, faulty_root, name):
    tab = open_tab(faulty_root)
    tab.open(f"{name}.html")
    assert any(FAULTY[name][1] in fault for fault in tab.faults), tab.faults
    tab.open("plain.html")
    assert not tab.faults


def test_the_element_that_makes_a_page_too_wide_is_named(open_tab, faulty_root):
    tab = open_tab(faulty_root)
    tab.open("wide.html", 360)
    assert tab.wide() == ["508 pixels wide", 'div class="much"']
    tab.open("wide.html", 600)
    assert tab.wide() == []
