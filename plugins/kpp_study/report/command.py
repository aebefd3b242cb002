"""`kpp report`: the report of a saved explanation."""

from __future__ import annotations

from pathlib import Path

import click

from kpp_study.one_line import in_one_line


@click.command("report")
@click.argument("explanation", type=click.Path(path_type=Path))
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="The HTML file to write; by default EXPLANATION with the ending .html.",
)
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
        from kpp_study.report.explanation_report import render_explanation

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
