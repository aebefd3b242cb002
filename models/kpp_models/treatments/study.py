"""`kpp_models.causal_effect`: from a table or a fit, and a graph or several, to effects that can be asked for again."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, overload

import jax
import networkx as nx
import numpy as np
import pandas as pd

from kpp.causal import CPDAG, CausalDAG, CausalError, NotCoveredError
from kpp.causal.toolkit import UnreachableOutcomeError, as_causal_graph, check_question
from kpp.foundation.caution import KppWarning
from kpp.foundation.validation import as_finite_array, count, one_of
from kpp.foundation.validation import probability as check_probability
from kpp.gp import AbstractPointwiseLikelihood, BernoulliLikelihood
from kpp.inference import MAP, AbstractInference, Fit
from kpp.typing import Numbers, RngKey
from kpp_models.tables.generalized import GeneralizedGP
from kpp_models.tables.regression import GPRegression
from kpp_models.treatments.effect import CausalEffect
from kpp_models.treatments.estimates.of_fit import check_fit, effect_of_fit
from kpp_models.treatments.estimates.without_adjustment import effect_of_expression, no_effect
from kpp_models.treatments.options import EffectOptions
from kpp_models.treatments.question import EffectQuestion
from kpp_models.treatments.regression import MANY_ROWS, fit_many_rows, fit_outcome

# A class with more graphs is represented by one graph for each set of parents of the treatment.
_MOST_GRAPHS = 500
_WORDS = {"+": "positive", "-": "negative", "0": "without effect", "?": "undecided", "": "not identified"}


@dataclasses.dataclass(frozen=True)
class EffectsByGraph:
    """The effect of a treatment under each of several graphs.

    Args:
        effects: The effect under each graph, or the error that says why the columns do not identify it there.
        graphs: The graphs. Of a `kpp.causal.CPDAG`, one for each set of parents of the treatment: the others have the
            same effects.
        counts: How many graphs each one stands for; None for a class of more than 500 graphs.
        treatment: The treatment.
    """

    effects: tuple[CausalEffect | NotCoveredError, ...]
    graphs: tuple[CausalDAG, ...]
    counts: tuple[int, ...] | None
    treatment: str

    def table(
        self,
        value: Any,
        reference: Any,
        *,
        measure: str = "difference",
        weights: Numbers | None = None,
        probability: float = 0.9,
    ) -> pd.DataFrame:
        r"""Return a contrast under each graph, and in the row "all" averaged over those that identify the effect.

        .. math:: p(\theta \mid \text{data}) \propto \sum_g \pi_g\, p(\theta \mid \text{data}, g)

        Args:
            value: The value of the treatment; see `CausalEffect.contrast`.
            reference: The value to compare with.
            measure: The measure of the contrast.
            weights: :math:`\pi`, such as prior probabilities in any scale; by default all graphs count equally.
            probability: The probability of the intervals.

        Returns:
            Parents of the treatment, mean, interval of equal tails, sign, weight, and expression of the effect. "+" or
            "-" means an interval on one side of no effect, "?" one that holds no effect, "0" a graph without an effect,
            and "" that it is not identified. The weight of "all" is that of the graphs that identify it.

        Raises:
            ValueError: If there is no weight of at least 0 for each graph, or as `CausalEffect.contrast`.
        """
        tail = (1 - check_probability(probability, "probability")) / 2
        names = ["parents", "mean", f"{100 * tail:g} %", f"{100 * (1 - tail):g} %", "sign", "weight", "expression"]
        null = 0.0 if measure == "difference" else 1.0
        rows: dict[Any, list[Any]] = {}
        mixture, shares = np.zeros(0), np.zeros(0)
        for place, weight in enumerate(self._weights(weights)):
            graph, effect = self.graphs[place], self.effects[place]
            draws, said = np.zeros(0), str(effect)
            if isinstance(effect, CausalEffect):
                draws = effect.contrast(value, reference, measure=measure).to_numpy().ravel()
                said = effect.dataset.attrs["estimand"]
            loads = np.full(len(draws), weight / max(len(draws), 1))
            mixture, shares = np.append(mixture, draws), np.append(shares, loads)
            parents = ", ".join(graph.sort(graph.parents(self.treatment)))
            rows[place] = [parents, *_described(draws, np.ones(len(draws)), tail, null), weight, said]
        rows["all"] = ["", *_described(mixture, shares, tail, null), shares.sum(), ""]
        return pd.DataFrame.from_dict(rows, orient="index", columns=names).rename_axis("graph")

    def agreement(self, value: Any, reference: Any, *, probability: float = 0.9) -> str:
        """Return in words in how many graphs a difference has which sign; see `table` for the arguments."""
        signs = self.table(value, reference, probability=probability)["sign"].to_numpy()[:-1]
        counts = np.array(self.counts or [1] * len(signs))
        parts = [f"{words} in {counts[signs == sign].sum()}" for sign, words in _WORDS.items() if sign in signs]
        return f"{', '.join(parts)} of {counts.sum()} {'graphs' if self.counts else 'sets of parents of the treatment'}"

    def _weights(self, weights: Numbers | None) -> np.ndarray:
        default = self.counts or [1] * len(self.graphs)
        given = np.asarray(as_finite_array(default if weights is None else weights, "weights"), float)
        if given.shape != (len(self.graphs),) or (given < 0).any() or not given.any():
            raise ValueError(f"`weights` must hold a number >= 0 for each of {len(default)} graphs, got {weights!r}")
        return given / given.sum()


def read_graphs(graph: Any, treatment: Any, outcome: str) -> tuple[list[CausalDAG], tuple[int, ...] | None] | None:
    """Return several graphs, and how many graphs each one stands for (see `EffectsByGraph`); None for one graph."""
    if not isinstance(graph, CPDAG):
        kinds = (CausalDAG, nx.DiGraph, str)
        if not isinstance(graph, list | tuple) or not graph or not all(isinstance(each, kinds) for each in graph):
            return None
        return [as_causal_graph(each) for each in graph], (1,) * len(graph)
    check_question(next(graph.graphs()), treatment, outcome)
    every = list(itertools.islice(graph.graphs(), _MOST_GRAPHS + 1))
    alike = {each.parents(treatment): each for each in every}
    if len(every) <= _MOST_GRAPHS:
        found = [each.parents(treatment) for each in every]
        return list(alike.values()), tuple(found.count(parents) for parents in alike)
    graphs = list(itertools.islice(graph.graphs(parents_of=treatment), _MOST_GRAPHS + 1))
    if len(graphs) > _MOST_GRAPHS:
        raise CausalError(f"`graph` must leave at most {_MOST_GRAPHS} sets of parents of {treatment!r} open")
    return graphs, None


def _described(draws: np.ndarray, loads: np.ndarray, tail: float, null: float) -> list[Any]:
    """Return the mean, the interval and the sign of draws with weights, of which there may be none."""
    if not loads.any():
        return [np.nan, np.nan, np.nan, ""]
    low, high = np.quantile(draws, [tail, 1 - tail], weights=loads, method="inverted_cdf")
    sign = "0" if low == high == null else "+" if low > null else "-" if high < null else "?"
    return [np.average(draws, weights=loads), low, high, sign]


_HOW = ("placebo", "random common cause", "subset")
_RANDOM = "random_common_cause"
_NO_PLACEBO = (
    "a placebo says nothing with kpp.MAP: the one lengthscale of a treatment without effect tends to infinity, so that "
    "the effect is 0 with an interval of no width; use kpp.Laplace, the default, or kpp.NUTS as `inference` of "
    "kpp_models.causal_effect"
)


@dataclasses.dataclass(frozen=True)
class EffectStudy:
    """A data frame, a graph, and the effect of interest."""

    table: pd.DataFrame  # with columns for treatment, outcome and covariates
    question: EffectQuestion
    inference: AbstractInference | None  # of the Gaussian process; by default `kpp.Laplace` with 250 draws
    options: EffectOptions
    likelihood: AbstractPointwiseLikelihood | None = None  # None for numbers with Gaussian noise, or booleans
    further: tuple[str, ...] = ()  # further covariates, columns of the table that are not in the graph

    def run(self, rng_key: RngKey) -> CausalEffect:
        """Fit a Gaussian process of the outcome, and average it; without an adjustment set, embed the expression.

        Nothing is fitted if the graph has no path for an effect.
        """
        return dataclasses.replace(self._estimated(rng_key), study=self)

    def run_by_graph(self, rng_key: RngKey, graphs: Sequence[CausalDAG]) -> list[CausalEffect | NotCoveredError]:
        """Return the effect under each graph, or why there is none; graphs with one expression share a fit."""
        studies = [
            dataclasses.replace(self, question=dataclasses.replace(self.question, graph=each)) for each in graphs
        ]
        # All questions are checked before the first fit.
        answers = [study.question.answer([str(column) for column in self.table.columns]) for study in studies]
        known: dict[tuple[str, ...] | str, CausalEffect | NotCoveredError] = {}
        found: list[CausalEffect | NotCoveredError] = []
        for study, answer in zip(studies, answers, strict=True):
            if answer not in known:
                try:
                    known[answer] = study.run(rng_key)
                except NotCoveredError as error:
                    known[answer] = error
            effect = known[answer]
            if isinstance(effect, CausalEffect):
                dataset = effect.dataset.assign_attrs(graph=str(study.question.graph))
                effect = dataclasses.replace(effect, dataset=dataset, study=study)
            found.append(effect)
        return found

    def refute(self, rng_key: RngKey, how: str) -> CausalEffect:
        """Estimate the effect again on a changed table; see `CausalEffect.refute`."""
        change_key, run_key = jax.random.split(rng_key)
        return self.changed(change_key, how).run(run_key)

    def _estimated(self, rng_key: RngKey) -> CausalEffect:
        try:
            covariates = self.question.find_covariates([str(column) for column in self.table.columns])
        except UnreachableOutcomeError:
            return no_effect(rng_key, self.table, self.question, self.options)
        if covariates is None:
            self._check_expression()
            return effect_of_expression(rng_key, self.table, self.question, self.options)
        return self._adjusted(rng_key, covariates)

    def _adjusted(self, rng_key: RngKey, covariates: tuple[str, ...]) -> CausalEffect:
        fit_key, effect_key = jax.random.split(rng_key)
        treatments, number = self.question.treatments, self.options.num_inducing
        models = GPRegression, GeneralizedGP
        features = self.table[[*treatments, *covariates, *self.further]]
        outcome, is_boolean = self.question.read_outcome(self.table)
        likelihood = BernoulliLikelihood() if is_boolean and self.likelihood is None else self.likelihood
        if number is not None and likelihood is not None:
            raise ValueError(f"`num_inducing` needs an outcome of numbers with Gaussian noise, got {number}")
        if likelihood is None and (number is not None or len(self.table) > MANY_ROWS):
            self.options.check_by_inducing(self.question.treatment)
            found = fit_many_rows(fit_key, features, outcome, self.inference, models, number)
        else:
            found = fit_outcome(fit_key, features, outcome, likelihood, self.inference, models, len(treatments))
        effect = effect_of_fit(effect_key, found.fit, self.question, self.options, found=found)
        return effect.rescaled(found.center, found.width)

    def changed(self, rng_key: RngKey, how: str) -> EffectStudy:
        """Return the study of a changed table; see `CausalEffect.refute`."""
        one_of(how, "how", _HOW)
        num_rows = len(self.table)
        if how == "subset":
            rows = np.sort(np.asarray(jax.random.permutation(rng_key, num_rows))[: max(2, 4 * num_rows // 5)])
            mask = self.options.rows
            mask = mask if mask is None or isinstance(mask, str) else np.asarray(mask)[rows]
            options = dataclasses.replace(self.options, rows=mask)
            return dataclasses.replace(self, table=self.table.iloc[rows], options=options)
        if how == "placebo":
            if isinstance(self.inference, MAP):
                warnings.warn(_NO_PLACEBO, KppWarning, stacklevel=4)
            order = np.asarray(jax.random.permutation(rng_key, num_rows))
            columns = self.table[[*self.question.treatments]]  # `to_numpy` would lose the type of a category
            shuffled = columns.iloc[order].set_axis(self.table.index)
            return dataclasses.replace(self, table=self.table.assign(**shuffled))
        numbers = np.asarray(jax.random.normal(rng_key, (num_rows,)))
        table = self.table.assign(**{_RANDOM: numbers})
        return dataclasses.replace(self, table=table, further=(*self.further, _RANDOM))

    def _check_expression(self) -> None:
        """Raise ValueError if there are options that an effect without an adjustment set does not have."""
        options = {
            "inference": self.inference,
            "likelihood": self.likelihood,
            "rows": self.options.rows,
            "derivative": self.options.derivative or None,
            "by_row": self.options.by_row or None,
            "policies": self.options.policies,
            "several treatments": self.question.treatments[1:] or None,
            "num_inducing": self.options.num_inducing,
            "doubly_robust": self.options.doubly_robust or None,
            "bootstrap": None if self.options.bootstrap else False,
            "how='random common cause'": self.further or None,
        }
        strange = [f"`{name}`" for name, value in options.items() if value is not None]
        if strange:
            raise ValueError(
                f"{', '.join(strange)} must be left out here: no adjustment set within the columns identifies the "
                f"effect of {self.question.treatment!r} on {self.question.outcome!r}, so it is estimated by the "
                "embedding of its expression with draws of the bootstrap"
            )


@overload
def causal_effect(
    rng_key: RngKey, data: object, graph: CPDAG | list[CausalDAG] | tuple[CausalDAG, ...], **options: Any
) -> EffectsByGraph: ...
@overload
def causal_effect(
    rng_key: RngKey,
    data: object,
    graph: Any,
    *,
    treatment: str | Sequence[str],
    outcome: str,
    at: Sequence[Any] | None = None,
    rows: Any = None,
    inference: AbstractInference | None = None,
    likelihood: AbstractPointwiseLikelihood | None = None,
    num_draws: int | None = None,
    bootstrap: bool = True,
    derivative: bool = False,
    by_row: bool = False,
    policies: Mapping[str, Any] | None = None,
    shift: float | None = None,
    num_inducing: int | None = None,
    doubly_robust: bool = False,
) -> CausalEffect: ...
def causal_effect(  # type: ignore[misc]  # mypy wants `**options` of the first overload
    rng_key: RngKey,
    data: object,
    graph: Any,
    *,
    treatment: str | Sequence[str],
    outcome: str,
    at: Sequence[Any] | None = None,
    rows: Any = None,
    inference: AbstractInference | None = None,
    likelihood: AbstractPointwiseLikelihood | None = None,
    num_draws: int | None = None,
    bootstrap: bool = True,
    derivative: bool = False,
    by_row: bool = False,
    policies: Mapping[str, Any] | None = None,
    shift: float | None = None,
    num_inducing: int | None = None,
    doubly_robust: bool = False,
) -> CausalEffect | EffectsByGraph:
    r"""Estimate the effect of a treatment on an outcome, with its uncertainty.

    .. math:: \mathrm{E}[Y \mid do(t)] = \sum_i w_i\, f(t, z_i), \qquad w \sim \mathrm{Dirichlet}(1, \ldots, 1)

    f is the regression of the outcome on treatment and adjustment set z, a Gaussian process. The average of its
    posterior over the rows is exact given the hyperparameters and the weights, which are drawn. For labels, counts and
    levels f is replaced by the mean response, :math:`h(f) = \mathrm{E}[Y \mid f]`: a probability, a rate or a mean
    level. The averages of h(f) are not Gaussian; they are drawn through joint draws of f at all rows.

    If no adjustment set lies within the columns of a data frame, but they identify the effect in another way (through
    mediators, or as in the napkin graph), its expression is estimated by `kpp.embeddings.EstimandEmbedding`, and the
    draws are those of its half-sample bootstrap. ``dataset.attrs["estimand"]`` and ``["method"]`` say what was
    estimated and how.

    If no directed path leads from the treatment to the outcome, the treatment has no effect. For a data frame, nothing
    is fitted then: each draw of the curve is flat, and is a draw of the mean outcome by the Bayesian bootstrap.

    Args:
        rng_key: A JAX random key.
        data: A data frame: the adjustment set is found in the graph, and a Gaussian process is fitted to standardized
            columns, with the kernels `kpp.kernels.default_kernel` of all columns and of the treatment, and
            `kpp.kernels.Linear` of the columns of numbers, added; each variance has a half-normal prior. Without an
            adjustment set the columns hold numbers, booleans or categories of two levels. Or a
            `kpp.Fit` of `kpp_models.GPRegression`, `GPClassification` or `GeneralizedGP` to a data frame whose columns
            are the treatment and an adjustment set.
        graph: The causal graph; see `kpp.causal.as_graph`. Or a list of graphs, or a `kpp.causal.CPDAG`, for the effect
            under each one.
        treatment: The treatment, a column: numbers, booleans or categories. Or c columns, for the effect of setting all
            of them; `at` then holds settings (c values each), and `CausalEffect.contrast` takes them.
        outcome: The outcome, a column of numbers or booleans.
        at: Values of the treatment. By default all levels of a category, both values of a treatment of two numbers, or
            20 values of other numbers between the quantiles of 5 and 95 percent.
        rows: A mask of rows (n,), for the effect in a subgroup: the average is over their covariates. "treated" and
            "untreated" are the rows with the larger and the smaller of two values, for the effect on the treated (ATT)
            or on the untreated (ATU).
        inference: The inference for a data frame; by default `kpp.Laplace` with 250 draws.
        likelihood: The likelihood of the outcome for a data frame, log-concave, such as `kpp.gp.BernoulliLikelihood`
            for labels 0 and 1 or `kpp.gp.PoissonLikelihood` for counts. By default numbers have Gaussian noise, and
            booleans are labels. The outcome is standardized if its mean is the latent value.
        num_draws: The least number of draws of the effect; by default 1000, or 200 without an adjustment set.
        bootstrap: Whether the uncertainty of the law of the covariates is included, by a Bayesian bootstrap.
        derivative: Whether to add the average derivative with respect to a treatment of numbers,
            `CausalEffect.average_derivative`.
        by_row: Whether to add joint draws of E[Y | do(t), z_i], for ``contrast(..., by_row=True)``, the effect in each
            row given its covariates (CATE). Memory grows with the number of rows times that of the values in `at`.
        policies: Policies by name, which decide the treatment of each row:

            .. math:: \mathrm{E}[Y \mid do(\pi)] = \sum_i w_i \sum_t \pi_i(t)\, f(t, z_i).

            The effect is computed under them and under "observed", the treatments as they are, in place of `at`. A
            policy is a value of the treatment, or a function from a data frame of the treatment and the adjustment set
            to a value for each row, (n,). By chance: a NumPyro distribution of a treatment of numbers, with
            ``batch_shape`` () or (n,), or a mapping from levels to their chances, numbers or (n,); a function may
            return these, too.
        shift: A number to add to the treatment of each row, for a policy with the name "shift".
        num_inducing: The number of inducing points, for a data frame whose outcome is a number with Gaussian noise. By
            default the posterior is exact up to 3,000 rows, and has 100 inducing points for more. The hyperparameters
            are then learned from at most 5,000 random rows, with 50 draws, and f from all rows.
        doubly_robust: Whether leave-one-out residuals, weighted by inverse propensities, correct each draw of the
            curve. It is for an effect that may be largest where few rows have a level of the treatment, which is a
            category or has two values. Intervals are wider everywhere. The outcome is a number with Gaussian noise.

    Returns:
        The effect, or those under several graphs.

    Raises:
        NotCoveredError: If the columns do not identify the effect, or no estimator covers its expression, which the
            error holds.
        CausalError: If the columns of a fit are not an adjustment set.
        ValueError: If a column is missing or invalid, `at` or `rows` are, the likelihood is not log-concave, a
            derivative does not exist, a policy gives treatments that are not finite or not known, derivatives, policies
            or several treatments are asked for with more than 3,000 rows, `num_inducing` is given for labels,
            `doubly_robust` for labels or a treatment of numbers, or options that need an adjustment set are given for
            an effect without one.
        TypeError: If `data` is neither a data frame of pandas nor a fit of a Gaussian-process regression.

    Example:
        >>> graph = "digraph { age -> dose; age -> rate; dose -> rate }"
        >>> options = {"treatment": "dose", "outcome": "rate", "inference": kpp.MAP()}
        >>> effect = kpp_models.causal_effect(key, table, graph, at=[0.0, 1.0], **options)
        >>> effect.contrast(1.0, 0.0).mean().round(1).item()
        2.0

    References:
        Yiu, Fong, Holmes and Rousseau, Semiparametric posterior corrections, 2023, for `doubly_robust`, there with the
        residuals of each draw of f.

    Warns:
        KppWarning: If fewer than 10 effective rows tell about a value of the treatment, or a policy gives treatments
            that similar rows do not have to more than a tenth of the rows.
    """
    if num_draws is not None:
        count(num_draws, "num_draws")
    if num_inducing is not None:
        count(num_inducing, "num_inducing")
    if shift is not None:
        if policies is not None and "shift" in policies:
            raise ValueError("`shift` must be left out: 'shift' already has a policy")
        policies = {"shift": lambda rows: rows[treatment] + shift, **(policies or {})}
    asked: Any = treatment if isinstance(treatment, str) else tuple(treatment)
    is_plain = policies is None and not by_row and not isinstance(graph, list | tuple | CPDAG)
    if not isinstance(asked, str) and not (is_plain and len({*asked}) == len(asked) > 1):
        raise ValueError(
            "`treatment` must be one name, or at least two different names, of which there are effects under one "
            f"graph, and without policies or `by_row`, got {asked!r}"
        )
    several = read_graphs(graph, asked, outcome)
    known = as_causal_graph(graph) if several is None else several[0][0]
    question = EffectQuestion(known, asked, outcome)
    options = EffectOptions(at, rows, num_draws, bootstrap, derivative, policies, by_row, num_inducing, doubly_robust)
    if isinstance(data, Fit):
        if several is not None or any(each is not None for each in (inference, likelihood, num_inducing)):
            raise TypeError(
                "`inference`, `likelihood` and `num_inducing` go with a data frame, as do several graphs; a fit has "
                "its own"
            )
        check_fit(data, question)
        return effect_of_fit(rng_key, data, question, options)
    if not isinstance(data, pd.DataFrame):
        raise TypeError(f"`data` must be a kpp.Fit or a data frame of pandas, got {type(data).__name__}")
    if likelihood is not None and not likelihood.log_concave:
        raise ValueError(
            f"`likelihood` must be log-concave for a data frame, got {type(likelihood).__name__}; fit "
            "kpp_models.GeneralizedGP with latent='sample' and pass the fit"
        )
    study = EffectStudy(data, question, inference, options, likelihood)
    if several is None:
        return study.run(rng_key)
    graphs, counts = several
    return EffectsByGraph(tuple(study.run_by_graph(rng_key, graphs)), tuple(graphs), counts, asked)
