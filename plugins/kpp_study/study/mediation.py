"""Mediation in a study: which part of the effect of its treatment leads through the mediators of its data."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, cast

import jax

from kpp_study.study.errors import StudyError, blame
from kpp_study.study.plan import StudyPlan


def mediation_of(plan: StudyPlan) -> Any:
    """Return the direct and indirect effects of a study, by the package of its model.

    A package with models has them if it has a function `mediation`, with the arguments and the result of
    `kpp_models.mediation`. The variables on causal paths have regressions of their own, by the inference of the study.
    """
    files, data = plan.config.data.further, plan.data
    model = type(plan.config.model)
    package = sys.modules[model.__module__.partition(".")[0]]
    mediation = getattr(package, "mediation", None)
    if not callable(mediation):
        raise StudyError(
            f"data.mediators needs a model of a package that has a function `mediation`, as kpp_models has; "
            f"{model.__name__} is of {package.__name__}"
        )
    with blame("[data]"):
        return mediation(
            jax.random.fold_in(plan.keys["fit"], 1),
            data.mediation,
            files.graph,
            treatment=files.treatment,
            mediators=files.mediators,
            outcome=data.target_name,
            at=files.at,
            inference=dataclasses.replace(cast(Any, plan.config.inference), progress=False),
        )
