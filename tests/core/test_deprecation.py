"""What will go says so, where it is used and in time."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
from packaging.version import Version

import kpp
from kpp.foundation.deprecation import warn_deprecated

ROOT = Path(__file__).resolve().parents[2]


def old_name() -> int:
    warn_deprecated("`old_name`", instead="`new_name`", removed_in="9.0")
    return 3


def test_a_deprecated_name_works_and_warns_the_line_that_uses_it():
    with pytest.warns(FutureWarning, match=r"^`old_name` is deprecated and goes in kpp 9\.0: use `new_name`$") as found:
        assert old_name() == 3
    # With checks of annotated types a decorator stands between the two.
    assert found[0].filename == __file__ or "jaxtyping" in found[0].filename


def test_users_see_the_warning_by_default():
    with warnings.catch_warnings(record=True) as found:
        warnings.resetwarnings()
        warnings.simplefilter("default")
        old_name()
    assert [warning.category for warning in found] == [FutureWarning]


def test_what_was_to_go_with_this_version_is_gone():
    sources = [path for folder in ("kpp", "models", "plugins") for path in (ROOT / folder).rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    announced = re.findall(r"warn_deprecated\([^)]*removed_in=\"([^\"]+)\"", text)
    assert not [version for version in announced if Version(version) <= Version(kpp.__version__)]
