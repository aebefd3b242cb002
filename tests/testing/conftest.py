"""What the proofs of the conformance checks share."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def caught() -> Callable[..., str]:
    """`caught(check, *example)` runs a check that must fail by a plain assertion, and returns what it says."""

    def run(check: Callable[..., None], *example: object) -> str:
        with pytest.raises(AssertionError) as failure:
            check(*example)
        return str(failure.value)

    return run
