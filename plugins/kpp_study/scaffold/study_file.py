"""The text of a new study file: every choice with a comment that says why, and what else is possible."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kpp_study.scaffold.columns import CLASSIFICATION, Column, Unusable, quoted
from kpp_study.study.dialect import PLAIN, TableFormat, dialect_keys

QUICK, FULL = "quick", "full"
#: From more rows on, inducing points replace the exact Gaussian process, whose time grows with the cube of the rows.
MANY_ROWS = 1000

_NUM_INDUCING = 100
_BACKGROUND = 200
_WIDTH, _COLUMN = 100, 34
_DIALECT = {
    "separator": "the character between the columns, as the file shows",
    "decimal": "the decimal mark, as the file shows",
    "encoding": "the encoding, as the file shows",
    "missing": "rows that lack a value are left out; with refuse, they are an error",
}


@dataclass(frozen=True)
class StudyChoices:
    """What decides the contents of a study file.

    Attributes:
        data: The file of the table.
        target: The target.
        task: "regression" or "classification".
        features: The features.
        left_out: The other columns and why they are left out.
        inference: "quick" or "full".
        num_rows: The number of rows of the table.
        num_different: The number of rows that differ in a feature.
        dialect: The format of the table, as far as it is not the usual one.
        has_codes: Whether the target holds numbers that are classes.
    """

    data: Path
    target: str
    task: str
    features: Sequence[Column]
    left_out: Sequence[Unusable]
    inference: str
    num_rows: int
    num_different: int
    dialect: TableFormat = PLAIN
    has_codes: bool = False

    @property
    def has_many_rows(self) -> bool:
        """Whether there are too many rows for an exact Gaussian process, so that the model has inducing points."""
        return self.num_rows > MANY_ROWS


def study_text(choices: StudyChoices, output: Path) -> str:
    """Return the text of a study file.

    Args:
        choices: The choices.
        output: The path of the study file, from whose folder the path of the data is written.

    Returns:
        TOML text with comments.
    """
    sections = (_head, _data, _model, _kernel, _inference, _explainer, _certificate)
    return "\n".join("\n".join(section(choices, output)) + "\n" for section in sections)


def _head(choices: StudyChoices, output: Path) -> Iterator[str]:
    yield from _comment(f"How do the features predict {quoted(choices.target)}? Run this study by")
    yield "#"
    yield f"#     kpp run {output.name}"
    yield "#"
    yield from _comment(
        "Every value can be changed. The guide to studies explains all keys, `kpp plugins` lists the models, kernels "
        "and explainers that can be named here, and `kpp schema` lets an editor complete them."
    )
    yield ""
    yield "[study]"
    yield f"title = {quoted(f'{choices.target}, predicted from {choices.data.name}')}"
    yield _line("seed = 0", "the same file and the same seed give the same numbers")


def _data(choices: StudyChoices, output: Path) -> Iterator[str]:
    what = "two classes" if choices.task == CLASSIFICATION else "numbers"
    yield "[data]"
    yield from _lines(f"path = {quoted(_relative(choices.data, output))}", "relative to the folder of this file")
    yield from _lines(f"target = {quoted(choices.target)}", f"{what}, so the task is {choices.task}")
    for key, value in dialect_keys(choices.dialect).items():
        yield _line(f"{key} = {value}", _DIALECT[key])
    if choices.has_codes:
        yield from _lines(f"categorical = [{quoted(choices.target)}]", "the numbers of the target are classes")
    yield _line("standardize = true", "the model sees numbers with mean 0 and standard deviation 1; the results")
    yield _line("", "are in the units of the table. With false, the model sees the table unchanged")
    yield "features = ["
    for feature in choices.features:
        yield from _lines(f"    {quoted(feature.name)},", feature.contents)
    yield "]"
    codes = [feature.name for feature in choices.features if feature.may_be_codes]
    if codes:
        target = [choices.target] if choices.has_codes else []
        yield from _comment(
            "Whole numbers that may be codes of categories. If they are, write the next line without #, and give each "
            "of these columns a Categorical kernel."
        )
        yield f"# categorical = [{', '.join(map(quoted, target + codes))}]"
    if choices.left_out:
        yield "# Left out:"
    for column in choices.left_out:
        yield from _comment(f"{quoted(column.name)} {column.reason}", indent="  ")


def _model(choices: StudyChoices, output: Path) -> Iterator[str]:
    yield "[model]"
    if choices.task == CLASSIFICATION:
        yield _line('name = "GPClassification"', "a Gaussian process of the log-odds of the second class")
        yield from _comment(
            "The prior mean of the log-odds: about 0, which is a probability of 0.5; with a standard deviation of 1 "
            "they can follow a rare or a frequent class."
        )
        yield 'mean = { prior = "Normal", loc = 0.0, scale = 1.0 }'
    else:
        yield _line('name = "GPRegression"', "a Gaussian process with normal noise")
        yield from _comment(
            "The variance of the noise, where the target has the variance 1. The prior has the median 0.07 and a long "
            "tail. It keeps away from 0, where the mode of a target without noise would be hard to find."
        )
        yield 'noise_variance = { prior = "InverseGamma", concentration = 1.0, rate = 0.05 }'
    if choices.has_many_rows:
        num_inducing = min(_NUM_INDUCING, choices.num_different)
        yield from _comment(
            f"An exact Gaussian process takes too long for {choices.num_rows} rows; {num_inducing} inducing points "
            "represent them. More points are more accurate and take more time."
        )
        yield 'latent = "inducing"'
        yield f"num_inducing = {num_inducing}"


def _kernel(choices: StudyChoices, output: Path) -> Iterator[str]:
    numbers = [feature.name for feature in choices.features if not feature.is_category]
    categories = [feature.name for feature in choices.features if feature.is_category]
    if not categories:
        yield "[model.kernel]"
        yield from _rbf(choices, len(numbers))
        return
    yield from _comment(
        "The kernel is a product, since categories are not quantities: "
        + ("one kernel for all numbers, times " if numbers else "")
        + "one for each column of categories."
    )
    yield "[model.kernel]"
    yield 'name = "Product"'
    if numbers:
        yield ""
        yield "[[model.kernel.kernels]]"
        yield from _rbf(choices, len(numbers), on=numbers)
    for position, name in enumerate(categories):
        yield ""
        yield "[[model.kernel.kernels]]"
        yield from _categorical(name, explained=position == 0)
        if position == 0 and not numbers:
            yield from _variance(choices)


def _rbf(choices: StudyChoices, num_features: int, on: Sequence[str] = ()) -> Iterator[str]:
    yield _line('name = "RBF"', 'smooth functions; rougher ones: "Matern52", "Matern32"')
    if on:
        yield from _names("on", on)
    # The mean squared distance of two rows is 2 d, so that exp(-2 d / (2 l^2)) = 1 / e for l = sqrt(d).
    yield from _comment(
        "One lengthscale for each feature, in standard deviations: how far a feature must move until the function "
        "changes much. The prior has the median sqrt(number of features), at which the values of the function at two "
        "typical rows have the correlation 0.37; a feature with a long lengthscale hardly matters."
    )
    loc = round(0.5 * math.log(num_features), 2)
    yield f'lengthscale = {{ prior = "LogNormal", loc = {loc}, scale = 1.0, expand = [{num_features}] }}'
    yield from _variance(choices)


def _categorical(name: str, explained: bool) -> Iterator[str]:
    yield 'name = "Categorical"'
    yield from _names("on", [name])
    if explained:
        yield from _comment(
            "The correlation between two different categories: 0 means that they have nothing in common, 1 that the "
            "column is irrelevant. The prior is uniform."
        )
    yield 'correlation = { prior = "Beta", concentration1 = 1.0, concentration0 = 1.0 }'


def _variance(choices: StudyChoices) -> Iterator[str]:
    unit = "log-odds" if choices.task == CLASSIFICATION else "standardized target"
    yield from _comment(f"The variance of the function, in squared units of the {unit}; the prior has the median 1.")
    yield 'variance = { prior = "LogNormal", loc = 0.0, scale = 1.0 }'


def _inference(choices: StudyChoices, output: Path) -> Iterator[str]:
    yield "[inference]"
    if choices.inference == FULL:
        yield _line('name = "NUTS"', 'full: draws from the posterior; "Laplace" is a quick approximation')
        yield _line("num_chains = 4", "the report compares them, to see whether they agree")
        yield _line("num_samples = 500", "draws per chain, after a warm-up")
        return
    if choices.has_many_rows and choices.task == CLASSIFICATION:
        yield _line(
            'name = "NaturalGradient"', "quick: a normal law of the function, at the mode of the other parameters"
        )
        yield _line("num_steps = 300", "the bound that is shown should no longer increase at the end")
        yield _line("num_samples = 200", "draws from it; leave-one-out results need at least 100")
    else:
        yield _line('name = "Laplace"', "quick: a normal approximation at the mode of the posterior")
        yield _line("num_samples = 500", "draws from it; leave-one-out results need at least 100")
        yield _line("tolerance = 1e-4", "where the search for the mode ends; Newton's steps then improve it")
    yield from _comment('For results to publish, draw from the posterior itself: name = "NUTS", num_chains = 4.')


def _explainer(choices: StudyChoices, output: Path) -> Iterator[str]:
    yield "[explainer]"
    yield _line('name = "rkhs-shap"', "exact Shapley values of functions of a kernel, with their posterior")
    yield _line('value_function = "interventional"', "an absent feature takes the values of background rows;")
    yield _line("", '"observational" conditions on the features that are present')
    if choices.task == CLASSIFICATION:
        yield from _comment(
            "Contributions are to the log-odds of the second class; the report also shows each probability. With the "
            "next line they are to the probability. That takes far longer (choose few rows and a background of some "
            "30), and the intervals then leave out what is unknown about the function, so they are too narrow."
        )
        yield '# scale = "probability"'
    yield _line("instances = 40", 'the number of rows to explain, drawn with the seed; or a list, or "all"')
    if choices.has_many_rows:
        yield _line(f"background = {_BACKGROUND}", 'the number of background rows, drawn with the seed; or "all"')
    else:
        yield _line('background = "all"', "the rows that replace absent features; a number draws some of them")


def _certificate(choices: StudyChoices, output: Path) -> Iterator[str]:
    yield from _comment(
        "How often do the intervals of this study hold the truth? The next lines without # simulate data like these, "
        "fit and explain them, and count. On two cores this takes about 20 times as long as the rest of the study; the "
        "run says the time before it starts."
    )
    yield "# [certificate]"
    yield "# data_sets = 40"


def _relative(data: Path, output: Path) -> str:
    """Return the path of the data from the folder of the study file; absolute if they are on different drives."""
    try:
        return Path(os.path.relpath(data, output.parent)).as_posix()
    except ValueError:
        return data.absolute().as_posix()


def _names(key: str, names: Sequence[str]) -> Iterator[str]:
    """Write a list of names, on one line if it fits."""
    line = f"{key} = [{', '.join(map(quoted, names))}]"
    if len(line) <= _WIDTH:
        yield line
        return
    yield f"{key} = ["
    yield from (f"    {quoted(name)}," for name in names)
    yield "]"


def _line(code: str, comment: str) -> str:
    """Return a line with a comment at its end."""
    return f"{code:<{_COLUMN}} # {comment}"


def _lines(code: str, comment: str) -> Iterator[str]:
    """Write a line whose length is unknown with a comment: at its end if it fits, else above."""
    if len(code) <= _COLUMN:
        yield _line(code, comment)
        return
    indent = code[: len(code) - len(code.lstrip())]
    yield f"{indent}# {comment}"
    yield code


def _comment(text: str, indent: str = "") -> list[str]:
    """Write a comment on lines of its own."""
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=f"# {indent}",
        subsequent_indent=f"# {indent}",
        break_long_words=False,
        break_on_hyphens=False,
    )
