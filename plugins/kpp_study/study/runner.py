"""Run a study: read, fit, explain, write."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr

from kpp.api import explain
from kpp.calibration.certificate import WHOLE, Certificate, certify, check_certifiable
from kpp.explanations import Explanation
from kpp.foundation.wording import duration
from kpp.inference import AbstractInference, AbstractModel, Fit
from kpp.preferences import Matches
from kpp.runtime.batching import progress_bar
from kpp.storage import arviz_data, netcdf
from kpp.typing import RngKey
from kpp_study.report.contents import ReportContents
from kpp_study.report.render import render_report
from kpp_study.study import results, words
from kpp_study.study.build import build_inference, build_model, complete_model, describe_model, plan_explainer
from kpp_study.study.config import StudyConfig
from kpp_study.study.data import StudyData, as_json, choose_rows
from kpp_study.study.errors import StudyError, blame
from kpp_study.study.explainer_plan import ExplainerPlan
from kpp_study.study.explaining import rehearsal, waterfall_positions
from kpp_study.study.held_out import leave_one_out
from kpp_study.study.kept_fit import KeptFit, kept_fit
from kpp_study.study.kinds import read_data
from kpp_study.study.output import check_output, output_folder
from kpp_study.study.stages import Stages
from kpp_study.study.study_fit import FIT_FILE, save_fit
from kpp_study.study.units import explanation_in_original_units, groups_in_original_units


@dataclass(frozen=True)
class _Plan:
    """A study whose parts have all been checked before any slow computation."""

    config: StudyConfig
    data: StudyData
    model: AbstractModel
    inference: AbstractInference
    explainer: ExplainerPlan
    instances: np.ndarray
    background: np.ndarray | None
    keys: dict[str, jax.Array]
    progress: bool


def run_study(
    config: StudyConfig, output: str | Path, *, overwrite: bool = False, resume: bool = False, progress: bool = True
) -> Path:
    """Run a study and write its results.

    Turn on float64 first, as the command does. All random numbers follow from the seed of the study.

    The finished fit is kept in a hidden file beside the output folder until the results are complete, so that another
    run can go on from it if this one is interrupted.

    Args:
        config: The study, from `load_study`.
        output: The folder for the results; its parents are created if needed.
        overwrite: Whether the results of an earlier study in that folder may be replaced.
        resume: Whether to go on from the fit that an interrupted run into the same folder has kept. Only [explainer],
            [certificate], [report] and the title may have changed since.
        progress: Whether to show the stages, their times and progress bars.

    Returns:
        The folder, which holds posterior.nc, explanation.nc, fit.nc, summary.csv and report.html; certificate.csv too
        if the study asks for it.

    Raises:
        StudyError: If the study, its data or the output folder is invalid, or there is no fit to go on from; as much as
            possible is checked before the fit.
    """
    output = Path(output)
    check_output(output, overwrite)
    certificate = ("certificate",) if config.certificate.data_sets else ()
    stages = Stages(("read", "fit", "explanation", *certificate, "predictions", "report"), show=progress)
    with stages.stage("read", announce=False):  # so an error in the input is the only line
        plan = _plan(config, progress)
    kept = kept_fit(output, config, plan.data)
    with output_folder(output, overwrite=overwrite) as folder:
        fit = _load_fit(kept, stages) if resume else _make_fit(plan, kept, stages)
        try:
            _write_folder(folder, plan, fit, stages)
        except BaseException:
            if kept.is_there():
                stages.say("stopped; the finished fit is kept, and `kpp run --resume` goes on from it")
            raise
    kept.remove()
    return output


def _load_fit(kept: KeptFit, stages: Stages) -> Fit:
    """Read the kept fit; its stage counts the seconds that the fit once took."""
    fit, stages.seconds["fit"] = kept.load()
    stages.say(f"going on from the finished fit, which took {duration(stages.seconds['fit'])}")
    return fit


def _make_fit(plan: _Plan, kept: KeptFit, stages: Stages) -> Fit:
    """Fit, and keep the fit for a run that goes on from it."""
    if kept.is_there():
        stages.say("an interrupted run has kept a finished fit of this study: --resume goes on from it; fitting again")
    with blame("[inference]"), stages.stage("fit"):
        fit = _fit(plan)
        arviz_data.groups(fit.idata)  # made here: their errors are those of the inference
    try:
        kept.save(fit, stages.seconds["fit"])
    except (OSError, TypeError, ValueError) as error:  # the study can be completed without it
        stages.say(f"the fit can't be kept for --resume: {error}")
    return fit


def _write_folder(folder: Path, plan: _Plan, fit: Fit, stages: Stages) -> None:
    """Explain a fit and write the files."""
    with blame("[explainer]"), stages.stage("explanation"):
        explanation = _explain(plan, fit)
    certificate = None
    if plan.config.certificate.data_sets:
        with blame("[certificate]"), stages.stage("certificate"):
            certificate = _certify(plan, fit, explanation)
            certificate.to_pandas().to_csv(folder / "certificate.csv")
    with stages.stage("predictions"):
        groups = groups_in_original_units(arviz_data.groups(fit.idata), plan.data)
        _write_results(folder, plan, fit, groups, explanation)
        try:
            save_fit(folder / FIT_FILE, fit, plan.data, plan.config.explainer.max_draws)
        except (TypeError, ValueError) as error:  # everything else of the study is complete
            stages.say(f"{FIT_FILE}, from which new rows could be predicted, can't be written: {error}")
        groups.setdefault("posterior", xr.Dataset())  # ArviZ drops the empty group of a model without priors
        contents = _report_contents(plan, fit, groups, explanation, stages.seconds)
        if certificate is not None:
            contents = dataclasses.replace(contents, certificate=certificate.sentence())
    with stages.stage("report"):
        html = render_report(contents, progress=_bar("report", plan.progress))
        (folder / "report.html").write_text(html, encoding="utf-8")


def _plan(config: StudyConfig, progress: bool) -> _Plan:
    data = read_data(config.data)
    explainer = plan_explainer(config.explainer, of_pairs=isinstance(data.training, Matches))
    rng = np.random.default_rng(config.seed)
    instances = choose_rows(config.explainer.instances, data.num_instances, rng, "explainer.instances")
    if isinstance(data.training, Matches):
        instances = np.sort(instances)  # matches have one order
    background = None
    if explainer.background is not None:
        background = choose_rows(explainer.background, data.num_rows, rng, "explainer.background")
    if isinstance(config.report.waterfalls, tuple):
        choose_rows(config.report.waterfalls, data.num_instances, rng, "report.waterfalls", among=instances)
    model = build_model(complete_model(config.model, data.fields))
    said = "" if data.classes is None else f"data.target: the column {data.target_name!r} has two classes; "
    with blame(f"{said}[model]"):
        prepared, arrays, schema = model.prepare(*data.training_data(), **data.options)
        _check_order_of_classes(model, data)
    if config.certificate.data_sets:
        with blame("[certificate]"):
            check_certifiable(prepared, arrays, schema)
    inference = build_inference(config.inference)
    if not progress:
        inference = dataclasses.replace(inference, progress=False)  # type: ignore[call-arg]  # every one has the field
    names = ("fit", "explain", "predict", "prior", "certify")
    keys = dict(zip(names, jax.random.split(jax.random.key(config.seed), len(names)), strict=True))
    with blame("[explainer]"):
        _rehearse(keys["explain"], prepared, data, explainer)
    return _Plan(config, data, model, inference, explainer, instances, background, keys, progress)


def _check_order_of_classes(model: AbstractModel, data: StudyData) -> None:
    """Raise StudyError if a model has classes in another order than the data, whose second one is called 1."""
    given = getattr(model, "classes", None)
    if data.classes is not None and given not in (None, data.classes):
        raise StudyError(f"model.classes must be {list(data.classes)} as in the data, or left out, got {list(given)}")


def _rehearse(rng_key: RngKey, model: AbstractModel, data: StudyData, plan: ExplainerPlan) -> None:
    """Explain a small function before the fit, so that an explainer that would fail after it fails early."""
    few = data.schema.read(data.model_frame())[:2]
    rehearsed = rehearsal(rng_key, model, few, data.schema) if plan.of_function else None
    if rehearsed is not None:
        explain(rehearsed, few[:1], rng_key=rng_key, **plan.arguments(None if plan.background is None else few))


def _fit(plan: _Plan) -> Fit:
    data = plan.data
    x, y = data.training_data()
    return plan.model.fit(plan.keys["fit"], x, y, inference=plan.inference, **data.options)


def _explain(plan: _Plan, fit: Fit) -> Explanation:
    thinned, kept = fit.thin(plan.config.explainer.max_draws)
    background = None if plan.background is None else plan.data.background(plan.background)
    arguments = plan.explainer.arguments(background, progress=plan.progress)
    explanation = explain(thinned, plan.data.instances(plan.instances), rng_key=plan.keys["explain"], **arguments)
    # The draws of a fit with a single draw have other numbers: they are draws of the function.
    if explanation.dataset.sizes.get("draw") == len(kept):
        explanation = Explanation(explanation.dataset.assign_coords(draw=kept))
    explanation = explanation_in_original_units(explanation, plan.data, plan.instances)
    explanation.attrs.update(
        target=plan.data.shown_target,
        seed=plan.config.seed,
        max_draws=plan.config.explainer.max_draws,
        posterior_draws=fit.num_chains * fit.num_draws,
        data=as_json(plan.data),
        study=plan.config.source,
    )
    return explanation


def _certify(plan: _Plan, fit: Fit, explanation: Explanation) -> Certificate:
    """Measure the intervals of the study; those of the predictions alone if the contributions lack a part of theirs."""
    background = None if plan.background is None else plan.data.background(plan.background)
    whole = explanation.attrs.get("uncertainty") in WHOLE and "draw" in explanation.values.dims
    arguments: dict[str, Any] = plan.explainer.arguments(background) if whole else {"explainer": None}
    arguments["progress"] = plan.progress  # of the certificate; the explainer shows none
    return certify(
        plan.keys["certify"],
        fit,
        plan.data.instances(plan.instances),
        data_sets=plan.config.certificate.data_sets,
        max_draws=plan.config.explainer.max_draws,
        **arguments,
    )


def _write_results(
    folder: Path, plan: _Plan, fit: Fit, groups: Mapping[str, xr.Dataset], explanation: Explanation
) -> None:
    attrs = {
        **fit.attrs,
        "kpp_study": plan.config.source,
        "kpp_data": json.dumps(as_json(plan.data)),
        "kpp_seed": plan.config.seed,
        "kpp_versions": json.dumps(words.versions()),
    }
    netcdf.write(folder / "posterior.nc", xr.Dataset(attrs=attrs), groups)
    explanation.save(folder / "explanation.nc")
    arviz_data.summary(groups.get("posterior", xr.Dataset()), interval_probability=0.9).to_csv(
        folder / "summary.csv", index_label="parameter"
    )


def _report_contents(
    plan: _Plan, fit: Fit, groups: Mapping[str, xr.Dataset], explanation: Explanation, seconds: Mapping[str, float]
) -> ReportContents:
    config, data, available = plan.config, plan.data, fit.num_chains * fit.num_draws
    probability = results.probabilities(fit, data)
    predictive = results.predictive_draws(plan.keys["predict"], fit, data, groups) if probability is None else None
    loo, reason = leave_one_out(fit, data, groups, of_labels=probability is not None)
    return ReportContents(
        title=config.title,
        created=_today(),
        data=words.data_summary(data),
        model=describe_model(plan.model),
        units=words.units(data),
        inference=words.inference(config, plan.inference, (fit.num_chains, fit.num_draws)),
        approximates=plan.inference.approximates,
        posterior=groups["posterior"],
        prior=results.prior_draws(plan.keys["prior"], plan.model, groups),
        sample_stats=groups.get("sample_stats"),
        predictive=predictive,
        probability=None if probability is None else data.of_matches(probability),
        further=words.further(plan.instances, probability, predictive, explanation, plan.model),
        loo=loo,
        loo_reason=reason,
        explanation=explanation,
        explained=words.explained(explanation, data, available),
        value_unit=words.value_unit(data, explanation, plan.model, probability is not None),
        waterfalls=waterfall_positions(config.report.waterfalls, explanation, plan.instances),
        observed=data.observed(plan.instances),
        provenance=words.provenance(config, explanation, available, seconds),
        versions=words.versions(),
        source=config.source,
    )


def _bar(label: str, progress: bool) -> Callable[[Any], Any]:
    def over(items: Any) -> Any:
        with progress_bar(len(items), label, unit="row", show=progress) as bar:
            for item in items:
                yield item
                bar.update()

    return over


def _today() -> str:
    today = datetime.date.today()
    return f"{today.day} {today:%B %Y}"
