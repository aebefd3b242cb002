"""Run the experiments of the papers, and write the pages of their results.

    python -m examples.reproduce --list
    python -m examples.reproduce NAME ... [--quick] [--data FOLDER] [--results FOLDER]
    python -m examples.reproduce --all --quick
    python -m examples.reproduce --confirm BEFORE AFTER
    python -m examples.reproduce --page

Each experiment runs in a process of its own, so that its time and its peak memory are its own. Its result goes to
`examples/reproduce/results/NAME.json`. Several quick runs go two at a time; their results go to `build/reproduce`, and
are no part of the pages.
`--confirm` compares two folders of quick results, from the code that the stored results are from and from the code as
it is. Results whose numbers agree are no longer marked as older than their code.
`--page` writes `docs/reproducibility/` from the stored results; a full run does so, too.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import click

# The scripts import each other as they do when they are run.
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parent))

import page
from confirm import confirm as confirm_results
from experiments import RESULTS, read_list, run, run_quickly, store

QUICK = Path("build/reproduce")
PRELOADED = [
    "arviz",
    "kpp",
    "kpp_models.estimators",
    "matplotlib.pyplot",
    "sklearn.ensemble",
    "sklearn.model_selection",
    "experiments",
]
QUICK_COMPILER = {
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1",
    "JAX_COMPILATION_CACHE_DIR": str(Path(".jax_cache").resolve()),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def print_list() -> None:
    """Print the names of all experiments with the items that they reproduce and the files that they need."""
    found = read_list()
    for name, experiment in found["experiments"].items():
        items = "; ".join(item["item"] for item in found["items"] if item.get("experiment") == name)
        files = f" (needs {', '.join(experiment['data'])})" if "data" in experiment else ""
        click.echo(f"{name:<24} {experiment['paper']}: {items}{files}")


def run_each(names: list[str], data: Path | None, folder: Path | None) -> list[str]:
    """Run every experiment in a process of its own, one after the other; return the names of those that failed."""
    failed, options = [], []
    for flag, path in (("--data", data), ("--results", folder)):
        options += [] if path is None else [flag, str(path)]
    for name in names:
        click.echo(f"== {name}")
        done = subprocess.run([sys.executable, "-m", "examples.reproduce", name, *options])
        failed += [name] if done.returncode else []
    return failed


def run_each_quickly(names: list[str], data: Path | None, folder: Path) -> list[str]:
    """Run the quick versions, two at a time, and print what failed ones printed; return the names of these.

    Experiments whose quick versions are the same are run once. Programs are compiled as fast as possible, and kept.
    Each process is a copy of one that has imported the libraries, which JAX allows until it has computed something.
    """
    experiments = read_list()["experiments"]
    different = {(experiments[name]["script"], *experiments[name]["quick"]): name for name in reversed(names)}
    chosen = [name for name in names if name in different.values()]
    for variable, value in QUICK_COMPILER.items():
        os.environ.setdefault(variable, value)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    failed = []
    with ProcessPoolExecutor(2, mp_context=context, max_tasks_per_child=1) as pool:
        for name, printed in zip(chosen, pool.map(partial(run_quickly, data=data, folder=folder), chosen), strict=True):
            click.echo(f"{name}: {'done' if printed is None else 'failed'}")
            if printed is not None:
                click.echo(printed)
                failed.append(name)
    return failed


@click.command(help=__doc__)
@click.argument("names", nargs=-1)
@click.option("--list", "listed", is_flag=True, help="Print the names of the experiments.")
@click.option("--all", "every", is_flag=True, help="Run all experiments.")
@click.option("--quick", is_flag=True, help="Run the quick versions.")
@click.option("--confirm", nargs=2, type=click.Path(path_type=Path, exists=True), help="Compare quick results.")
@click.option("--page", "paged", is_flag=True, help="Write the pages.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False, exists=True), help="The folder of the data.")
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), help="The folder of the results.")
def main(
    names: tuple[str, ...],
    listed: bool,
    every: bool,
    quick: bool,
    confirm: tuple[Path, Path] | None,
    paged: bool,
    data: Path | None,
    results: Path | None,
) -> None:
    """Run what is asked for."""
    known = list(read_list()["experiments"])
    if unknown := set(names) - set(known):
        raise click.BadParameter(f"{sorted(unknown)} are no names of experiments; `--list` shows the names")
    if listed or not (names or every or paged or confirm):
        print_list()
    chosen = known if every else list(names)
    if len(chosen) == 1:
        folder = results or (QUICK if quick else RESULTS)
        click.echo(f"result in {store(run(chosen[0], data, quick=quick), folder)}")
    elif chosen:
        if failed := run_each_quickly(chosen, data, results or QUICK) if quick else run_each(chosen, data, results):
            raise click.ClickException(f"these experiments failed: {', '.join(failed)}")
    if confirm:
        confirmed, refused = confirm_results(*confirm)
        click.echo(f"confirmed: {', '.join(confirmed)}")
        click.echo("\n".join(f"not confirmed: {name}, because {reason}" for name, reason in refused.items()))
    if paged or confirm or (chosen and not quick and results is None):
        page.write()


if __name__ == "__main__":
    main()
