"""Run the experiments of the papers, and write the pages of their results.

    python -m examples.reproduce --list
    python -m examples.reproduce NAME ... [--quick] [--data FOLDER] [--results FOLDER]
    python -m examples.reproduce --all --quick
    python -m examples.reproduce --page

Each experiment runs in a process of its own, so that its time and its peak memory are its own. Its result goes to
`examples/reproduce/results/NAME.json`; results of quick runs go to `build/reproduce`, and are no part of the pages.
`--page` writes `docs/reproducibility/` from the stored results; a full run does so, too.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

# The scripts import each other as they do when they are run.
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parent))

import page
from experiments import RESULTS, read_list, run, store

QUICK = Path("build/reproduce")


def print_list() -> None:
    """Print the names of all experiments with the items that they reproduce and the files that they need."""
    found = read_list()
    for name, experiment in found["experiments"].items():
        items = "; ".join(item["item"] for item in found["items"] if item.get("experiment") == name)
        files = f" (needs {', '.join(experiment['data'])})" if "data" in experiment else ""
        click.echo(f"{name:<24} {experiment['paper']}: {items}{files}")


def run_each(names: list[str], options: list[str]) -> list[str]:
    """Run every experiment in a process of its own; return the names of those that failed."""
    failed = []
    for name in names:
        click.echo(f"== {name}")
        done = subprocess.run([sys.executable, "-m", "examples.reproduce", name, *options])
        failed += [name] if done.returncode else []
    return failed


@click.command(help=__doc__)
@click.argument("names", nargs=-1)
@click.option("--list", "listed", is_flag=True, help="Print the names of the experiments.")
@click.option("--all", "every", is_flag=True, help="Run all experiments.")
@click.option("--quick", is_flag=True, help="Run the quick versions.")
@click.option("--page", "paged", is_flag=True, help="Write the pages.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False, exists=True), help="The folder of the data.")
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), help="The folder of the results.")
def main(
    names: tuple[str, ...], listed: bool, every: bool, quick: bool, paged: bool, data: Path | None, results: Path | None
) -> None:
    """Run what is asked for."""
    known = list(read_list()["experiments"])
    if unknown := set(names) - set(known):
        raise click.BadParameter(f"{sorted(unknown)} are no names of experiments; `--list` shows the names")
    if listed or not (names or every or paged):
        print_list()
    chosen = known if every else list(names)
    if len(chosen) == 1:
        folder = results or (QUICK if quick else RESULTS)
        click.echo(f"result in {store(run(chosen[0], data, quick=quick), folder)}")
    elif chosen:
        options = ["--quick"] * quick
        for flag, folder in (("--data", data), ("--results", results)):
            options += [] if folder is None else [flag, str(folder)]
        if failed := run_each(chosen, options):
            raise click.ClickException(f"these experiments failed: {', '.join(failed)}")
    if paged or (chosen and not quick and results is None):
        page.write()


if __name__ == "__main__":
    main()
