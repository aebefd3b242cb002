"""The section [explainer]: a registered explainer, its options, and which rows and draws it explains."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kpp import registry
from kpp_study.study.errors import StudyError, blame
from kpp_study.study.sections.options import check_options, fields_of, is_needed
from kpp_study.study.sections.section import Rows, count, read_section, rows, text

_ROWS = "a number of rows, a list of row numbers (from 0), or all"
#: The keys besides the options of the explainer and its value function.
KEYS = {
    "name": text("the name of an explainer (`kpp plugins` lists them)", "rkhs-shap"),
    "instances": rows(f"the rows to explain: {_ROWS}", 40),
    "background": rows(f"the rows that replace absent features: {_ROWS}"),
    "max_draws": count("the largest number of posterior draws to explain", 200, 1),
}


@dataclasses.dataclass(frozen=True)
class ExplainerConfig:
    """The section [explainer], whose options have been checked."""

    name: str
    instances: Rows  # the rows to explain
    background: Rows | None  # the rows that stand for "feature unknown"; None if the explainer takes none
    max_draws: int  # of the posterior; they are evenly thinned from every chain
    options: Mapping[str, Any]  # of the explainer and its value function, "value_function" among them
    of_function: bool  # whether it explains a function in an RKHS
    shows_progress: bool

    def arguments(self, background: Any, *, progress: bool = False) -> dict[str, Any]:
        """Return the arguments of `kpp.explain` that choose the explainer.

        None stands for no background; a progress bar is shown only if the explainer has one.
        """
        shown = {"progress": progress} if self.shows_progress else {}
        given = {} if background is None else {"background": background}
        return {"explainer": self.name, **shown, **self.options, **given}


def read_explainer_section(table: Any, *, of_pairs: bool) -> ExplainerConfig:
    """Read and check the section [explainer]; `of_pairs` says whether functions of pairs are explained, as of matches.

    Raises StudyError if a key is invalid, or the explainer, its value function or an option is unknown.
    """
    found = read_section(table, "explainer", KEYS, is_open=True)
    options = {key: value for key, value in table.items() if key not in KEYS}
    with blame("explainer.name"):
        cls: Any = registry.get("explainers", found["name"])
    if (cls.requires == "pairs") != of_pairs:
        kind = "matches need" if of_pairs else "only data of the kind 'matches' have"
        raise StudyError(f"explainer.name: {kind} an explainer of pairs, such as 'pref-shap', got {found['name']!r}")
    known = fields_of(cls)
    if "value_function" in known:
        name = options.setdefault("value_function", "interventional")
        with blame("explainer.value_function"):
            known |= fields_of(registry.get("value_functions", name))
    takes_background = known.pop("background", None) is not None
    check_options("explainer", options, known, KEYS)
    for name, field in known.items():
        if name not in options and is_needed(field):
            raise StudyError(f"explainer.{name} is missing: the explainer {found['name']!r} needs it")
    if found["background"] is not None and not takes_background:
        raise StudyError("explainer.background: neither the explainer nor its value function takes a background")
    found["background"] = (found["background"] or "all") if takes_background else None
    of_function = cls.requires == "rkhs_function"
    return ExplainerConfig(**found, options=options, of_function=of_function, shows_progress="progress" in known)
