"""The explainer of a study, with its checked options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kpp_study.study.section import Rows


@dataclasses.dataclass(frozen=True)
class ExplainerPlan:
    """A registered explainer whose options have been checked.

    Attributes:
        name: Its registered name.
        background: The rows of the background, or None if the explainer does not take one.
        options: The other options, ``value_function`` among them.
        of_function: Whether it explains a function in an RKHS.
        shows_progress: Whether it has a progress bar.
    """

    name: str
    background: Rows | None
    options: Mapping[str, Any]
    of_function: bool
    shows_progress: bool

    def arguments(self, background: Any, *, progress: bool = False) -> dict[str, Any]:
        """Return the arguments of `kpp.explain` that choose the explainer.

        Args:
            background: The background points, or None if the explainer does not take any.
            progress: Whether to show the progress bar, if the explainer has one.
        """
        shown = {"progress": progress} if self.shows_progress else {}
        given = {} if background is None else {"background": background}
        return {"explainer": self.name, **shown, **self.options, **given}
