"""The contents of the report of a study: its results, and the sentences and small tables about it."""

from __future__ import annotations

import dataclasses
import datetime
import math
import platform
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import xarray as xr

from kpp.explanations import Explanation
from kpp.foundation.wording import listed
from kpp.inference import AbstractModel, Fit
from kpp.priors import prior_sites
from kpp.storage import arviz_data, serialization
from kpp.typing import RngKey
from kpp_study.report import sentences
from kpp_study.report.contents import ColumnSummary, DataSummary, Loo, ReportContents
from kpp_study.report.numbers import counted
from kpp_study.report.rows import LATENT, Predicted, by_prediction, spread
from kpp_study.study.reading.data import StudyData
from kpp_study.study.sections.config import StudyConfig
from kpp_study.study.sections.section import Rows

if TYPE_CHECKING:
    from kpp_study.study.plan import StudyPlan

# The smallest number of draws for which leave-one-out weights and predictive intervals are accurate enough.
_ENOUGH_DRAWS = 100
_PREDICTIVE_DRAWS = 200  # made if the fit has fewer than `_ENOUGH_DRAWS`
_INFORMATIVE = 0.05  # the bound of Kallioinen et al. (2024), Statistics and Computing 34, for the sensitivity to priors
_PRIOR_DRAWS = 4000  # scalar draws are cheap, and a histogram of 4000 is smooth


def report_contents(
    plan: StudyPlan, fit: Fit, groups: Mapping[str, xr.Dataset], explanation: Explanation, seconds: Mapping[str, float]
) -> ReportContents:
    """Return the contents of the report; groups and explanation are in the units of the table."""
    config, data, rows, keys = plan.config, plan.data, plan.rows, plan.keys
    model, available = config.model, fit.num_chains * fit.num_draws
    probability = probabilities(fit, data)
    predictive = predictive_draws(keys["predict"], fit, data, groups) if probability is None else None
    loo, reason = leave_one_out(fit, data, groups, of_labels=probability is not None)
    latent = LATENT.get(getattr(model, "link", ""), "latent function")
    further: Predicted | None = None  # what the rows are predicted to be, where the explanation is of something else
    if probability is not None and explanation.attrs.get("scale") != "probability":
        further = Predicted.probability(probability[rows], latent)
    elif predictive is not None and data.observed is not None:  # of bags, the draws are not of the explained points
        further = Predicted.observation(predictive[:, rows])
    return ReportContents(
        title=config.title,
        created=sentences.today(),
        data=_data_summary(data),
        model=describe_model(model),
        inference=_inference(config, fit),
        approximates=config.inference.approximates,
        posterior=groups["posterior"],
        latent=xr.Dataset({name: site for name, site in groups.get("latent", {}).items() if name in fit.draws}),
        sensitivity=prior_sensitivity(fit, groups),
        prior=prior_draws(keys["prior"], model, groups),
        sample_stats=groups.get("sample_stats"),
        predictive=predictive,
        probability=probability if probability is None or data.match is None else probability[data.match],
        further=further,
        loo=loo,
        loo_reason=reason,
        explanation=explanation,
        explained=sentences.explained(explanation, rows=data.num_points, available=available),
        value_unit=_value_unit(data, explanation, None if probability is None else latent),
        waterfalls=_waterfall_positions(config.waterfalls, explanation, rows),
        observed=None if data.observed is None else [data.observed[row] for row in rows],
        provenance=_provenance(config, explanation, available, seconds),
        versions=sentences.versions(),
        source=config.source,
    )


def prior_draws(rng_key: RngKey, model: AbstractModel, groups: Mapping[str, xr.Dataset]) -> xr.Dataset | None:
    """Return draws from the prior of every hyperparameter, led by two axes of draws; None without a group `prior`.

    The group `prior` holds few draws, because each also needs a draw of the data. For a site whose prior is a field of
    the model, many more draws are cheap.
    """
    if "prior" not in groups:
        return None
    known: dict[str, Any] = {}
    for field in dataclasses.fields(model):
        known |= prior_sites(field.name, getattr(model, field.name))
    draws: dict[Any, Any] = {}
    for number, (name, few) in enumerate(groups["prior"].data_vars.items()):
        if name in known and known[name].event_shape == few.shape[2:]:
            many = known[name].sample(jax.random.fold_in(rng_key, number), (_PRIOR_DRAWS,))
            draws[name] = (("prior_chain", "prior_draw", *few.dims[2:]), np.asarray(many)[None])
        else:
            draws[name] = few
    return xr.Dataset(draws)


def prior_sensitivity(fit: Fit, groups: Mapping[str, xr.Dataset]) -> str:
    """Return a sentence on whether priors drive the result; empty if the fit has no or too few draws of them."""
    if "log_prior" not in groups or fit.num_chains * fit.num_draws < _ENOUGH_DRAWS or fit.fixed_sites:
        return ""
    found = arviz_data.prior_sensitivity(groups)
    if found is None:
        return "How sensitive the posterior is to the priors is not measured: this needs ArviZ 1 and Python 3.12."
    driven = [f"{name} ({value:.2f})" for name, value in found.items() if value > _INFORMATIVE]
    told = f"matters little for all hyperparameters: no sensitivity is above {_INFORMATIVE}"
    if driven:
        told = f"matters for {', '.join(driven)}: these sensitivities are above {_INFORMATIVE}"
    return f"The strength of all priors together {told}, in ArviZ's measure of power-scaling (psense)."


def predictive_draws(rng_key: RngKey, fit: Fit, data: StudyData, groups: Mapping[str, xr.Dataset]) -> np.ndarray | None:
    """Return draws of the target from the posterior predictive, in its own unit, of shape (s, n); None without any.

    The group `posterior_predictive` has one draw per posterior draw; if there are few, more are drawn.
    """
    replicates = groups.get("posterior_predictive")
    if replicates is not None and fit.num_chains * fit.num_draws >= _ENOUGH_DRAWS:
        values = next(iter(replicates.data_vars.values()))
        return values.transpose("chain", "draw", "instance").values.reshape(-1, data.y.size)
    if data.observed is None:  # draws at points are not draws of what was observed
        return None
    draws = fit.sample_predictive(rng_key, data.points, _PREDICTIVE_DRAWS)
    return data.units.target_center + data.units.target_scale * draws.transpose("sample", "instance").values


def probabilities(fit: Fit, data: StudyData) -> np.ndarray | None:
    """Return the predicted probability of label 1 for each row or pair, or None if the model has no probabilities."""
    if not data.is_label or data.observed is None:
        return None
    predicted = fit.predict(data.points if data.match is None else data.points.inputs)
    return predicted["probability"].mean(("chain", "draw")).values if "probability" in predicted else None


def leave_one_out(
    fit: Fit, data: StudyData, groups: Mapping[str, xr.Dataset], *, of_labels: bool
) -> tuple[Loo | None, str]:
    """Return the leave-one-out estimate, or None and the reason why it is not available.

    The fit is in the model's units, and its groups in the units of the data; `of_labels` says whether the model
    predicts the probability of a label.
    """
    draws = groups["posterior"].sizes.get("chain", 1) * groups["posterior"].sizes.get("draw", 1)
    if "log_likelihood" not in groups:
        return None, "the model gives no pointwise log likelihood."
    if draws < _ENOUGH_DRAWS:
        return None, f"it needs at least {_ENOUGH_DRAWS} posterior draws, and there are {draws}."
    with warnings.catch_warnings():  # the report shows high values of Pareto k
        warnings.simplefilter("ignore", UserWarning)
        result = arviz_data.loo(arviz_data.from_groups(groups))
    skill: dict[str, Any] = {}
    if data.is_table:
        skill["baseline"] = _baseline(data.y, of_labels)
        skill["r_squared"] = None if of_labels else _r_squared(fit, data, groups)
    return Loo(**arviz_data.loo_numbers(result), **skill), ""


def _baseline(y: np.ndarray, of_labels: bool) -> float:
    """Return the mean log score of the shares of the classes, or of a normal law with the target's mean and sd."""
    if of_labels:
        shares = np.asarray([np.mean(y), 1.0 - np.mean(y)])
        return float(np.sum(shares * np.log(shares)))
    return -0.5 * (math.log(2.0 * math.pi * float(np.var(y))) + 1.0)


def _r_squared(fit: Fit, data: StudyData, groups: Mapping[str, xr.Dataset]) -> float | None:
    r"""Return one minus the squared error of :math:`E[y_i \mid y_{-i}]`, divided by that of the mean of the others.

    The mean given a draw of the hyperparameters is averaged with the smoothed importance weights of leave-one-out.
    """
    if not fit.model.observes_points:
        return None
    center, scale = data.units.target_center, data.units.target_scale
    held_out = fit.map_draws(lambda model, sample, data: model.held_out_mean(sample, data))
    means = center + scale * np.asarray(held_out).reshape(-1, data.y.size)
    (densities,) = groups["log_likelihood"].data_vars.values()
    weights = arviz_data.held_out_weights(densities.transpose("chain", "draw", ...).values.reshape(means.shape))
    errors = data.y - np.sum(weights * means, axis=0)
    others = (data.y.sum() - data.y) / (data.y.size - 1)
    return float(1.0 - np.sum(errors**2) / np.sum((data.y - others) ** 2))


def _data_summary(data: StudyData) -> DataSummary:
    """Describe the data in their own units."""
    names = data.units.schema.feature_names
    constant = [name for j, name in enumerate(names) if np.ptp(data.x[:, j]) == 0.0]
    return DataSummary(
        file=data.path.name,
        counted=data.counted,
        target=data.units.target,
        y=data.y,
        columns=[_column(data, index) for index in range(len(names))],
        scaled=_scaled(data),
        warnings=[f"Constant columns, which cannot explain anything: {', '.join(constant)}."] if constant else [],
    )


def describe_model(model: AbstractModel) -> tuple[str, str]:
    """Return the name of a model, and its fields as indented text with ``~`` before each prior."""
    described = serialization.to_spec(model)
    return str(described["name"]), "\n".join(_lines(described, ""))


def _lines(described: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in described.items():
        if key not in ("name", "kind") and value is not None:
            yield from _field_lines(key, value, indent)


def _field_lines(key: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping) and "prior" in value:
        yield f"{indent}{key} ~ {_prior(value)}"
    elif isinstance(value, Mapping) and value["name"] == "Selected":
        first, *rest = _field_lines(key, value["kernel"], indent)
        yield f"{first}, on {', '.join(map(str, value['features']))}"
        yield from rest
    elif isinstance(value, Mapping):
        yield f"{indent}{key} = {value['name']}"
        yield from _lines(value, indent + "    ")
    elif isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
        for index, entry in enumerate(value):
            yield from _field_lines(f"{key}.{index}", entry, indent)
    else:
        yield f"{indent}{key} = {value}"


def _prior(described: Mapping[str, Any]) -> str:
    shown = {key: value for key, value in described.items() if key not in ("prior", "expand", "to_event")}
    arguments = ", ".join(
        f"{key}={_prior(value) if isinstance(value, Mapping) else value}" for key, value in shown.items()
    )
    expand = described.get("expand")
    return f"{described['prior']}({arguments})" + (f", {' × '.join(map(str, expand))} independent" if expand else "")


def _inference(config: StudyConfig, fit: Fit) -> str:
    """Return a sentence on how the model was fitted."""
    used, chains, draws = config.inference, fit.num_chains, fit.num_draws
    name = config.sections["inference"]["name"]
    if not used.approximates and chains * draws > 1:
        steps = getattr(used, "num_warmup", None)
        warmup = f" after {steps} steps of warm-up" if steps is not None else ""
        return f"Fitted by {name}: {counted(chains, 'chain')} of {draws} draws{warmup}."
    return f"Fitted by {name}: {counted(chains * draws, 'draw')}."


def _value_unit(data: StudyData, explanation: Explanation, latent: str | None) -> str:
    """Return the unit of the contributions, in words; `latent` is that of the function of a label."""
    if explanation.attrs.get("scale") == "probability":
        return f"probability of {data.units.target}"
    return f"in units of {data.target_name}" if latent is None else f"{latent} of {data.units.target}"


def _waterfall_positions(rows: Rows, explanation: Explanation, instances: np.ndarray) -> list[int]:
    """Return the positions of the explained rows that get a waterfall plot, in the order of their predictions.

    `rows` is a number of rows, spread evenly from the lowest to the highest prediction, a list of row numbers, or all;
    `instances` are the numbers of the explained rows.
    """
    order = by_prediction(explanation)
    if isinstance(rows, tuple):
        return [position for position in order if instances[position] in rows]
    if rows == "all":
        return order
    return [order[len(order) // 2]] if rows == 1 else spread(order, rows)


def _provenance(
    config: StudyConfig, explanation: Explanation, available: int, seconds: Mapping[str, float]
) -> dict[str, str]:
    """Return facts about the computation, by name."""
    sizes = explanation.dataset.sizes
    used = sizes.get("chain", 1) * sizes.get("draw", 1)
    entries = {
        "run": datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        "seed": str(config.seed),
        "posterior draws explained": f"{used} of {available}",
        "explained rows": ", ".join(str(row) for row in explanation.dataset.coords["instance"].values),
    }
    entries |= {f"explanation: {name}": fact for name, fact in sentences.recorded(explanation).items()}
    entries |= {f"time for {name}": f"{duration:.1f} s" for name, duration in seconds.items()}
    entries["software"] = ", ".join(f"{name} {version}" for name, version in sentences.versions().items())
    entries["Python"] = platform.python_version()
    return entries


def _column(data: StudyData, index: int) -> ColumnSummary:
    schema, values = data.units.schema, data.x[:, index]
    name = schema.feature_names[index]
    numbers = {"mean": values.mean(), "sd": values.std(), "low": values.min(), "high": values.max()}
    levels = schema.levels.get(name, ())
    counts = [f"{level} ({int((values == code).sum())})" for code, level in enumerate(levels)]
    return ColumnSummary(name, **{key: float(value) for key, value in numbers.items()}, levels=listed(counts, 12))


def _scaled(data: StudyData) -> str:
    """Return which columns the model sees shifted and scaled; empty if none."""
    units = data.units
    if units.is_identity:
        return ""
    with_target = units.target_scale != 1.0 or units.target_center != 0.0
    return "features that are numbers" + f" and {data.target_name}" * with_target
