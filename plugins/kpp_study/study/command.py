"""`kpp run`, `kpp predict`, `kpp report` and `kpp schema`: the command line of studies and their results."""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path

import click

from kpp_study.study.errors import StudyError, in_one_line

_output = functools.partial(click.option, "--output", "-o", type=click.Path(path_type=Path))


@click.command("run")
@click.argument("study", type=click.Path(path_type=Path))
@_output(help="The folder for the results, made if needed; by default STUDY-results in the current folder.")
@click.option("--overwrite", is_flag=True, help="Replace the results of an earlier study in that folder.")
@click.option("--resume", is_flag=True, help="Go on from the finished fit of an interrupted run into that folder.")
@click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error instead of one line.")
def run(study: Path, output: Path | None, overwrite: bool, resume: bool, quiet: bool, debug: bool) -> None:
    """Run a study: fit a model, explain it, write a report.

    STUDY is a TOML file with the sections [data], [model], [inference] and [explainer]. The results are posterior.nc,
    explanation.nc, fit.nc, summary.csv and report.html; they appear all together when the study is done. Errors in the
    input are reported in one line, with exit code 2.
    """
    output = output or Path(f"{study.stem}-results")
    logging.basicConfig(format="kpp: %(message)s")
    _set_up_jax()
    with in_one_line("run", OSError, StudyError, debug=debug):
        from kpp_study.study.runner import run_study
        from kpp_study.study.sections.config import load_study

        config = load_study(study)
        try:
            run_study(config, output, overwrite=overwrite, resume=resume, progress=not quiet)
        except OSError as error:  # a full disk, for example
            raise OSError(f"the results can't be written to {str(output)!r}: {error}") from error
    if not quiet:
        click.echo(f"Done. The report is {output / 'report.html'}")


@click.command("predict")
@click.argument("fit", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path))
@_output(help="The CSV file; by default DATA-predictions.csv.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it is there.")
@click.option(
    "--unseen",
    type=click.Choice(["error", "prior"]),
    default="error",
    show_default=True,
    help="For levels of a category that the study has not seen: refuse them, or predict from the prior.",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error instead of one line.")
def predict(fit: Path, data: Path, output: Path | None, overwrite: bool, unseen: str, debug: bool) -> None:
    """Predict the rows of DATA (CSV or Parquet) by the FIT of a study, in the units of its table.

    FIT is the output folder of `kpp run`, or a file of `kpp.Fit.save`. DATA has the columns of the features; others
    are ignored. The columns of the result are `prediction` (of two classes, the probability of the second),
    `prediction_sd`, its standard deviation, and `observation_sd`, that of a new observation, as far as the model
    provides them.
    """
    output = output or Path(f"{data.stem}-predictions.csv")
    with in_one_line("predict", OSError, TypeError, ValueError, debug=debug):
        if output.exists() and not overwrite:
            raise ValueError(f"--output {str(output)!r} is there; add --overwrite to replace it")
        _set_up_jax()
        from kpp.runtime.files import replace_when_complete
        from kpp_study.study.reading.files import read_table
        from kpp_study.study.study_fit import load_fit

        predicted = load_fit(fit).predict(read_table(data, "DATA"), unseen=unseen)
        with replace_when_complete(output) as partial:
            predicted.to_csv(partial, index_label="row")
    click.echo(f"Done. {len(predicted)} predictions are in {output}")


@click.command("report")
@click.argument("explanation", type=click.Path(path_type=Path))
@_output(help="The HTML file to write; by default EXPLANATION with the ending .html.")
@click.option("--title", help="The title of the report; by default it names the target.")
@click.option("--overwrite", is_flag=True, help="Replace the output file if it exists.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error instead of one line.")
def report(explanation: Path, output: Path | None, title: str | None, overwrite: bool, debug: bool) -> None:
    """Write an HTML report on a saved explanation.

    EXPLANATION is a netCDF file or a Zarr store of `kpp.Explanation.save`, such as the explanation.nc of a study. The
    report is one file, which needs no network. Errors are reported in one line, with exit code 2.
    """
    output = explanation.with_suffix(".html") if output is None else output
    with in_one_line("report", ImportError, OSError, TypeError, ValueError, debug=debug, code=2):
        from kpp.explanations import Explanation
        from kpp.runtime.files import replace_when_complete
        from kpp_study.report.render import render_explanation

        if output.is_dir():
            raise ValueError(f"--output {str(output)!r} is a folder; give the name of a file, such as report.html")
        if output.exists() and not overwrite:
            raise ValueError(f"--output {str(output)!r} exists; add --overwrite to replace it")
        try:
            loaded = Explanation.load(explanation)
        except ValueError as error:
            needed = "EXPLANATION must be a file of `kpp.Explanation.save`, such as explanation.nc"
            raise ValueError(f"{error}. {needed}") from error
        page = render_explanation(loaded, title=title)
        with replace_when_complete(output) as partial:
            partial.write_text(page, encoding="utf-8")
    click.echo(f"Done. The report is {output}")


@click.command("schema")
def schema() -> None:
    """Print the JSON Schema of study files, with which editors complete and check them.

    It holds the models, kernels and explainers of the installed plugins, so print it again after installing one.
    """
    import json

    from kpp_study.study.sections.schema import study_schema

    click.echo(json.dumps(study_schema(), indent=2))


def _set_up_jax() -> None:
    """Turn on float64 and the compile cache; if the cache cannot be created, go on without it."""
    import jax

    from kpp.runtime.cache import enable_compile_cache

    jax.config.update("jax_enable_x64", True)
    try:
        enable_compile_cache(os.environ.get("JAX_COMPILATION_CACHE_DIR"))
    except ValueError as error:
        logging.getLogger("kpp").warning("going on without a compile cache: %s", error)
