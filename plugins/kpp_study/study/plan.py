"""The plan of a study: its data, the rows that it explains, and its parts, all checked before any slow computation."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from types import NoneType
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.special
import xarray as xr

from kpp.api import explain
from kpp.calibration.certifiable import check_certifiable
from kpp.data.tables import Schema
from kpp.explanations import Explanation
from kpp.foundation.validation import as_finite_array
from kpp.functionals import GPPosterior, Values
from kpp.functions import RKHSFunction
from kpp.gp import GaussianLikelihood, StudentTLikelihood
from kpp.inference import AbstractInference, AbstractModel, Fit
from kpp.kernels import AbstractKernel
from kpp.priors import prior_sites, substitute
from kpp.storage import arviz_data
from kpp.typing import RngKey
from kpp_study.study.errors import StudyError, blame
from kpp_study.study.reading.data import StudyData
from kpp_study.study.reading.kinds import read_data
from kpp_study.study.sections.config import StudyConfig
from kpp_study.study.sections.data_config import DataConfig
from kpp_study.study.sections.section import Rows


@dataclass(frozen=True)
class StudyPlan:
    """What a study does, with everything that its steps need."""

    config: StudyConfig
    data: StudyData
    rows: np.ndarray  # the numbers of the explained rows
    points: Any  # the explained rows, in the model's units
    altered: np.ndarray | None  # the explained rows with another value of the treatment, in the model's units
    background: Any  # the rows that replace absent features, in the model's units; None if the explainer takes none
    keys: dict[str, jax.Array]  # the random key of each step
    progress: bool

    def fit(self) -> Fit:
        """Fit the model."""
        (x, y), inference = self.data.training, self.config.inference
        shown = inference if self.progress else _quiet(inference)
        fit = self.config.model.fit(self.keys["fit"], x, y, inference=shown, **self.data.options)
        arviz_data.groups(fit.idata)  # made here: their errors are those of the inference
        return fit

    def mediation(self) -> Any:
        """Return the direct and indirect effects of the treatment, by the package of the model.

        A package has them if it has a function `mediation` with the arguments and the result of `kpp_models.mediation`.
        It fits regressions of its own, by the inference of the study.
        """
        files, model = self.config.data.further, type(self.config.model)
        package = sys.modules[model.__module__.partition(".")[0]]
        mediation = getattr(package, "mediation", None)
        if not callable(mediation):
            raise StudyError(
                f"data.mediators needs a model of a package with a function `mediation`, such as kpp_models, got "
                f"{model.__name__} of {package.__name__}"
            )
        with blame("[data]"):
            return mediation(
                jax.random.fold_in(self.keys["fit"], 1),
                self.data.mediation,
                files.graph,
                treatment=files.treatment,
                mediators=files.mediators,
                outcome=self.data.target_name,
                at=files.at,
                inference=_quiet(self.config.inference),
            )

    def counterfactuals(self, fit: Fit, altered: np.ndarray) -> pd.DataFrame:
        """Return what the target of the explained rows would have been at `altered`, with 90% intervals.

        It is y + f(t', z) - f(t, z), with the treatment t, its other value t' and the columns z to adjust for: the
        noise of a row stays what it was (abduction, action and prediction; Pearl, 2009, theorem 7.1.7).
        """
        law = (
            fit.thin(self.config.explainer.max_draws)[0]
            .function_posterior()
            .of(Values(altered) - Values(self.data.units.points(self.data.x[self.rows])))
        )
        observed, changes = self.data.y[self.rows], [np.mean(law.mean, axis=(0, 1)), *law.interval(0.9)]
        mean, lower, upper = observed + self.data.units.target_scale * np.stack(changes)
        columns = {"observed": observed, "mean": mean, "lower": lower, "upper": upper}
        return pd.DataFrame(columns, index=pd.Index(self.rows, name="row"))

    def explain(self, fit: Fit) -> Explanation:
        """Explain the rows of the study, in the units of its table."""
        explainer = self.config.explainer
        thinned, kept = fit.thin(explainer.max_draws)
        arguments = explainer.arguments(self.background, progress=self.progress)
        explanation = explain(thinned, self.points, rng_key=self.keys["explain"], **arguments)
        # The draws of a fit with a single draw have other numbers: they are draws of the function.
        if explanation.dataset.sizes.get("draw") == len(kept):
            explanation = Explanation(explanation.dataset.assign_coords(draw=kept))
        table = self.data.x[self.rows] if self.data.match is None else None
        explanation = self.data.units.explanation(explanation, table, self.rows)
        explanation.attrs.update(
            seed=self.config.seed,
            max_draws=explainer.max_draws,
            posterior_draws=fit.num_chains * fit.num_draws,
            data=self.data.facts,
            study=self.config.source,
        )
        return explanation


def _quiet(inference: AbstractInference) -> AbstractInference:
    return dataclasses.replace(cast(Any, inference), progress=False)  # every one has this field


def make_plan(config: StudyConfig, *, progress: bool) -> StudyPlan:
    """Read the data of a study, choose the rows, and check that model, data and explainer fit each other."""
    data, model, explainer = read_data(config.data), config.model, config.explainer
    if data.treatment is not None and not model.has_function_posterior:
        raise StudyError(f"data.treatment needs a model of a Gaussian process, got {type(model).__name__}")
    rng = np.random.default_rng(config.seed)
    rows = choose_rows(explainer.instances, data.num_points, rng, "explainer.instances")
    rows = rows if data.match is None else np.sort(rows)  # matches have one order
    background = None
    if explainer.background is not None:
        chosen = choose_rows(explainer.background, len(data.x), rng, "explainer.background")
        background = data.features.take(chosen, axis=0)
    if isinstance(config.waterfalls, tuple):
        choose_rows(config.waterfalls, data.num_points, rng, "report.waterfalls", among=rows)
    said = "" if data.classes is None else f"data.target: the column {data.target_name!r} has two classes; "
    with blame(f"{said}[model]"):
        prepared, arrays, schema = model.prepare(*data.training, **data.options)
        given = getattr(model, "classes", None)
        if data.classes is not None and given not in (None, data.classes):
            needed = f"must be {list(data.classes)} as in the data, or left out"
            raise StudyError(f"model.classes {needed}, got {list(given)}")
    if config.data_sets:
        with blame("[certificate]"):
            check_certifiable(prepared, arrays, schema)
    names = ("fit", "explain", "predict", "prior", "certify")
    keys = dict(zip(names, jax.random.split(jax.random.key(config.seed), len(names)), strict=True))
    is_altered = config.data.kind == "graph" and config.data.further.counterfactual is not None
    altered = _altered(config.data, data, rows, getattr(model, "likelihood", None)) if is_altered else None
    with blame("[explainer]"):
        _rehearse(keys["explain"], prepared, config, data)
    return StudyPlan(config, data, rows, data.points.take(rows), altered, background, keys, progress)


def _altered(config: DataConfig, data: StudyData, rows: np.ndarray, likelihood: object) -> np.ndarray:
    """Return the explained rows with another value of the treatment, in the model's units."""
    if data.is_label or not isinstance(likelihood, (NoneType, GaussianLikelihood, StudentTLikelihood)):
        raise StudyError("data.counterfactual needs a target of numbers with Gaussian or Student-t noise")
    units, name, value = data.units, config.further.treatment, config.further.counterfactual
    with blame("data.counterfactual"):
        points = np.array(as_finite_array(units.schema.read(data.features.take(rows).assign(**{name: value})), name))
    column = units.schema.index(name)
    points[:, column] = (points[:, column] - units.center[column]) / units.scale[column]
    return points


def choose_rows(
    rows: Rows, num_rows: int, rng: np.random.Generator, key: str, *, among: np.ndarray | None = None
) -> np.ndarray:
    """Return row numbers for a number (drawn without replacement, then sorted), a list of row numbers, or ``"all"``.

    They are chosen from `among`, by default from all rows. Raises StudyError, naming the key of the study file, if a
    row does not exist.
    """
    among = np.arange(num_rows) if among is None else np.asarray(among)
    if rows == "all":
        return among
    if isinstance(rows, int):
        if rows >= among.size:
            return among
        return np.sort(rng.choice(among, size=rows, replace=False))
    unknown = sorted(set(rows) - set(among.tolist()))
    if unknown:
        raise StudyError(f"{key} lists the rows {unknown}, but the data have the rows 0 to {num_rows - 1}")
    return np.array(rows)


@dataclass(frozen=True)
class _Rehearsal:
    """The part of a `kpp.Fit` that explainers use, for a function that was not fitted to data."""

    schema: Schema
    tiny: RKHSFunction

    def function(self) -> RKHSFunction:
        """Return the function."""
        return self.tiny

    def function_posterior(self, *, at: str = "draws") -> GPPosterior:
        """Return a Gaussian posterior with the function as its mean and the prior covariance."""
        return GPPosterior(self.tiny, jnp.zeros((self.tiny.num_points, 0)))

    def predict(self, x: Any) -> xr.Dataset:
        """Return probabilities."""
        probability = scipy.special.expit(np.asarray(self.tiny(np.asarray(x))))
        return xr.Dataset({"probability": (("chain", "draw", "instance"), probability[None, None])})


def _rehearse(rng_key: RngKey, model: AbstractModel, config: StudyConfig, data: StudyData) -> None:
    """Explain a small function with the model's kernel, so that an explainer that would fail after the fit fails early.

    For example, some explainers require kernels that factorize, and options may have invalid values.
    """
    explainer, kernel = config.explainer, getattr(model, "kernel", None)
    if not explainer.of_function or not isinstance(kernel, AbstractKernel):
        return
    few = data.units.schema.read(data.features)[:2]
    priors = prior_sites("kernel", kernel)
    draws = {site: prior.sample(jax.random.fold_in(rng_key, i)) for i, (site, prior) in enumerate(priors.items())}
    tiny = RKHSFunction(substitute("kernel", kernel, draws), few, np.ones(len(few)))
    arguments = explainer.arguments(None if explainer.background is None else few)
    explain(_Rehearsal(data.units.schema, tiny), few[:1], rng_key=rng_key, **arguments)
