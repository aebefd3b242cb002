"""Measure how often the intervals that kpp prints hold the truth, and write the page of the results.

    python -m examples.coverage --list
    python -m examples.coverage NAME ... [--quick] [--jobs 2] [--pieces 4] [--seconds 600] [--results FOLDER]
    python -m examples.coverage --all --quick
    python -m examples.coverage --page

Each result goes to `examples/coverage/results/NAME.json`; results of quick runs, of two data sets, go to
`build/coverage`, and are no part of the page. `--page` writes `docs/reference/measured_intervals.md` from the stored
results; a full run does so, too.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import click

from examples.coverage import page
from examples.coverage.simulations import RESULTS, measure, result, simulations, store, this_commit

QUICK = Path("build/coverage")
Numbers = dict[str, list[list[float]]]


class Options(NamedTuple):
    """How simulations are run: see the options of the command."""

    quick: bool
    jobs: int
    pieces: int
    seconds: float
    commit: str
    folder: Path


def run_piece(
    cores: queue.SimpleQueue[int], name: str, first: int, step: int, options: Options
) -> tuple[Numbers, float]:
    """Measure the data sets first, first + step, ... in a process of its own, on one core."""
    core = cores.get()
    count = 2 if options.quick else simulations()[name].data_sets
    piece = f"{core},{first},{count},{step},{options.seconds}"
    start = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "examples.coverage", name, "--piece", piece], stdout=subprocess.PIPE, text=True
        )
    finally:
        cores.put(core)
    if done.returncode:
        raise click.ClickException(f"{name} failed, see above")
    found: Numbers = json.loads(done.stdout.splitlines()[-1])
    return found, time.perf_counter() - start


def run(names: list[str], options: Options) -> None:
    """Run simulations in several processes, and store each result as soon as it is complete."""
    cores: queue.SimpleQueue[int] = queue.SimpleQueue()
    usable = sorted(os.sched_getaffinity(0))
    for number in range(options.jobs):
        cores.put(usable[number % len(usable)])
    with ThreadPoolExecutor(options.jobs) as pool:
        running = {
            name: [
                pool.submit(run_piece, cores, name, first, options.pieces, options) for first in range(options.pieces)
            ]
            for name in names
        }
        for name, futures in running.items():
            parts = [future.result() for future in futures]
            found = {quantity: sum((part[quantity] for part, _ in parts if part), []) for quantity in parts[0][0]}
            stored = result(name, found, sum(seconds for _, seconds in parts), options.commit)
            store(stored, options.folder)
            click.echo(summary(stored))


def measure_piece(name: str, piece: str) -> Numbers:
    """Measure one piece in this process: of the data sets first, first + step, ... below count."""
    core, first, count, step = (int(word) for word in piece.split(",")[:-1])
    os.sched_setaffinity(0, {core})
    deadline = time.time() + float(piece.split(",")[-1])
    return measure(simulations()[name], range(first, count, step), deadline)


def summary(stored: dict[str, Any]) -> str:
    """Return a line for each quantity of a result."""
    return "\n".join(
        f"{stored['name']:<28} {row['quantity']:<34} {row['held']:.3f} ± {row['standard_error']:.3f} of "
        f"{row['nominal']}  width {row['width']:<8.3g} error {row['error']:<8.3g} {row['data_sets']} data sets"
        for row in stored["quantities"]
    )


@click.command(help=__doc__)
@click.argument("names", nargs=-1)
@click.option("--list", "listed", is_flag=True, help="Print the names of the simulations.")
@click.option("--all", "every", is_flag=True, help="Run all simulations.")
@click.option("--quick", is_flag=True, help="Run two data sets each.")
@click.option("--page", "paged", is_flag=True, help="Write the page.")
@click.option("--jobs", default=2, help="How many processes run at once, each on one core.")
@click.option("--pieces", default=1, help="In how many processes the data sets of a name are measured.")
@click.option("--seconds", default=float("inf"), help="After how many seconds a process begins no further data set.")
@click.option("--commit", default=this_commit, help="The commit that results name, where git does not know it.")
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), help="The folder of the results.")
@click.option("--piece", hidden=True)
def main(
    names: tuple[str, ...],
    listed: bool,
    every: bool,
    quick: bool,
    paged: bool,
    jobs: int,
    pieces: int,
    seconds: float,
    commit: str,
    results: Path | None,
    piece: str | None,
) -> None:
    """Run what is asked for."""
    if piece is not None:
        click.echo(json.dumps(measure_piece(names[0], piece)))
        return
    known = simulations()
    if unknown := set(names) - set(known):
        raise click.BadParameter(f"{sorted(unknown)} are no names of simulations; `--list` shows the names")
    if listed or not (names or every or paged):
        for name, simulation in known.items():
            click.echo(f"{name:<28} {simulation.data_sets:>5} data sets: {simulation.about}")
    chosen = list(known) if every else list(names)
    folder = results or (QUICK if quick else RESULTS)
    run(chosen, Options(quick, jobs, pieces, seconds, commit, folder))
    if paged or (chosen and not quick and results is None):
        page.write()


if __name__ == "__main__":
    main()
