"""Run a study: read, fit, explain, write."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from tqdm import tqdm

from kpp.calibration.certifiable import WHOLE
from kpp.calibration.certificate import Certificate, certify
from kpp.explanations import Explanation
from kpp.foundation.wording import duration
from kpp.inference import Fit
from kpp.inspection import Curve, curve
from kpp.runtime.batching import progress_bar
from kpp.runtime.signals import end_if_asked
from kpp.storage import arviz_data, netcdf
from kpp_study.report import sentences
from kpp_study.report.render import render_report
from kpp_study.study.errors import blame
from kpp_study.study.output import KeptFit, check_output, kept_fit, output_folder
from kpp_study.study.plan import StudyPlan, make_plan
from kpp_study.study.reading.data import StudyData
from kpp_study.study.reported import report_contents
from kpp_study.study.sections.config import StudyConfig
from kpp_study.study.study_fit import FIT_FILE, save_fit

# A probability is drawn jointly at all rows and values, which should take seconds.
_CURVES, _VALUES, _ROWS_OF_PROBABILITY = 3, 12, 30


class Stages:
    """Lines on the error stream that say which stage of a run begins and how long it has taken."""

    def __init__(self, names: tuple[str, ...], *, show: bool = True) -> None:
        self.seconds: dict[str, float] = {}  # of each finished stage
        self._names = names
        self._show = show

    @contextlib.contextmanager
    def stage(self, name: str, *, announce: bool = True) -> Iterator[None]:
        """Time a block, and say when it begins, unless `announce` is False, and when it is done."""
        number = f"[{self._names.index(name) + 1}/{len(self._names)}] {name}"
        if announce:
            self.say(f"{number} ...")
        start = time.perf_counter()
        end_if_asked()
        yield
        end_if_asked()
        self.seconds[name] = time.perf_counter() - start
        self.say(f"{number}: {duration(self.seconds[name])}")

    def say(self, line: str) -> None:
        """Write one line, above a progress bar if there is one."""
        if self._show:
            tqdm.write(f"kpp: {line}", file=sys.stderr)
            sys.stderr.flush()


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
        The folder, which holds posterior.nc, explanation.nc, fit.nc, summary.csv and report.html; certificate.csv,
        counterfactual.csv, effect.csv and mediation.csv if the study asks for them.

    Raises:
        StudyError: If the study, its data or the output folder is invalid, or there is no fit to go on from; as much as
            possible is checked before the fit.
    """
    output = Path(output)
    check_output(output, overwrite)
    certificate = ("certificate",) if config.data_sets else ()
    mediation = ("mediation",) if config.data.kind == "graph" and config.data.further.mediators else ()
    stages = Stages(("read", *mediation, "fit", "explanation", *certificate, "predictions", "report"), show=progress)
    with stages.stage("read", announce=False):  # so an error in the input is the only line
        plan = make_plan(config, progress=progress)
    kept = kept_fit(output, config, plan.data)
    with output_folder(output, overwrite=overwrite) as folder:
        mediated = None
        if mediation:  # before the fit, which may take long, so that its errors come early
            with stages.stage("mediation"):
                mediated = plan.mediation()
                sentences.mediation_table(mediated).to_csv(folder / "mediation.csv", index_label="effect")
        if resume:
            fit, stages.seconds["fit"] = kept.load()
            stages.say(f"going on from the finished fit, which took {duration(stages.seconds['fit'])}")
        else:
            fit = _make_fit(plan, kept, stages)
        try:
            _write_folder(folder, plan, fit, stages, mediated)
        except BaseException:
            if kept.is_there():
                stages.say("stopped; the finished fit is kept, and `kpp run --resume` goes on from it")
            raise
    kept.remove()
    return output


def _make_fit(plan: StudyPlan, kept: KeptFit, stages: Stages) -> Fit:
    """Fit, and keep the fit for a run that goes on from it."""
    if kept.is_there():
        stages.say("an interrupted run has kept a finished fit of this study: --resume goes on from it; fitting again")
    with blame("[inference]"), stages.stage("fit"):
        fit = plan.fit()
    try:
        kept.save(fit, stages.seconds["fit"])
    except (OSError, TypeError, ValueError) as error:  # the study can be completed without it
        stages.say(f"the fit can't be kept for --resume: {error}")
    return fit


def _write_folder(folder: Path, plan: StudyPlan, fit: Fit, stages: Stages, mediated: Any) -> None:
    """Explain a fit and write the files; `mediated` are the direct and indirect effects, or None."""
    with blame("[explainer]"), stages.stage("explanation"):
        explanation = plan.explain(fit)
    certificate: Certificate | None = None
    if plan.config.data_sets:
        with blame("[certificate]"), stages.stage("certificate"):
            certificate = _certify(plan, fit, explanation)
            certificate.to_pandas().to_csv(folder / "certificate.csv")
    with stages.stage("predictions"):
        groups = plan.data.units.groups(arviz_data.groups(fit.idata), plan.data.x)
        _write_results(folder, plan, fit, groups, explanation)
        try:
            save_fit(folder / FIT_FILE, fit, plan.data, plan.config.explainer.max_draws)
        except (TypeError, ValueError) as error:  # everything else of the study is complete
            stages.say(f"{FIT_FILE}, from which new rows could be predicted, can't be written: {error}")
        contents = report_contents(plan, fit, groups, explanation, stages.seconds)
        curves, said = _curves(fit, plan.data, explanation), []
        if plan.data.treatment is not None:
            curves[0].summary().to_csv(folder / "effect.csv")
            said = [sentences.effect(curves[0], plan.data.units.target)]
            said += [] if mediated is None else [sentences.mediation(mediated, plan.data.units.target)]
            if plan.altered is not None:
                table = plan.counterfactuals(fit, plan.altered)
                table.to_csv(folder / "counterfactual.csv")
                value = plan.config.data.further.counterfactual
                name, units = plan.data.treatment, plan.data.units
                known = plan.data.x[:, units.schema.index(name)]
                said.append(sentences.counterfactual(table, name, value, units.target, known))
        found = "" if certificate is None else certificate.sentence()
        contents = dataclasses.replace(contents, curves=curves, effects=said, certificate=found)
    with stages.stage("report"):
        html = render_report(contents, progress=lambda rows: _with_bar(rows, plan.progress))
        (folder / "report.html").write_text(html, encoding="utf-8")


def _curves(fit: Fit, data: StudyData, explanation: Explanation) -> list[Curve]:
    """Return the curves, in the units of the data, of the features with the largest contributions, if they exist.

    The curve of a treatment is the first one, and averages over as many rows as `kpp.curve` takes.
    """
    if data.match is not None or not fit.has_function_posterior:
        return []
    values = abs(explanation.mean().values)
    sizes = values.mean([dim for dim in values.dims if dim != "feature"]).to_series()
    names = [name for name in sizes.sort_values(ascending=False, kind="stable").index if _varies(data, name)]
    some = data.points[:: -(-data.num_points // _ROWS_OF_PROBABILITY) if data.is_label else None]
    rows = {name: some for name in names[:_CURVES]}
    if data.treatment is not None:
        rows = {data.treatment: data.points} | {name: some for name in rows if name != data.treatment}
    return [data.units.curve(curve(fit, points, name, grid=_VALUES)) for name, points in rows.items()]


def _varies(data: StudyData, name: str) -> bool:
    """Return whether a name is that of a feature, not of a group, with several values."""
    schema = data.units.schema
    return name in schema.feature_names and bool(np.ptp(data.x[:, schema.index(name)]) > 0)


def _certify(plan: StudyPlan, fit: Fit, explanation: Explanation) -> Certificate:
    """Measure the intervals; those of the predictions alone if the contributions lack a part of theirs."""
    explainer = plan.config.explainer
    whole = explanation.attrs.get("uncertainty") in WHOLE and "draw" in explanation.values.dims
    arguments: dict[str, Any] = explainer.arguments(plan.background) if whole else {"explainer": None}
    arguments["progress"] = plan.progress  # of the certificate; the explainer shows none
    return certify(
        plan.keys["certify"],
        fit,
        plan.points,
        data_sets=plan.config.data_sets,
        max_draws=explainer.max_draws,
        **arguments,
    )


def _write_results(
    folder: Path, plan: StudyPlan, fit: Fit, groups: dict[str, xr.Dataset], explanation: Explanation
) -> None:
    attrs = {
        **fit.attrs,
        "kpp_study": plan.config.source,
        "kpp_data": json.dumps(plan.data.facts),
        "kpp_seed": plan.config.seed,
        "kpp_versions": json.dumps(sentences.versions()),
    }
    netcdf.write(folder / "posterior.nc", xr.Dataset(attrs=attrs), groups)
    explanation.save(folder / "explanation.nc")
    groups.setdefault("posterior", xr.Dataset())  # ArviZ drops the empty group of a model without priors
    summary = arviz_data.summary(groups["posterior"], interval_probability=0.9)
    summary.to_csv(folder / "summary.csv", index_label="parameter")


def _with_bar(rows: Sequence[int], show: bool) -> Iterator[int]:
    """Yield rows of the report, with a progress bar."""
    with progress_bar(len(rows), "report", unit="row", show=show) as bar:
        for row in rows:
            yield row
            bar.update()
