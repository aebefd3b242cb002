"""`kpp explain`: explain the rows of a file by a saved fit, into a Zarr store."""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from kpp.foundation.distribution import extra
from kpp_study.study.errors import in_one_line

_ERRORS = (ImportError, OSError, RuntimeError, TypeError, ValueError)
_PARQUET, _CSV = (".parquet", ".pq"), (".csv",)


@click.command("explain")
@click.argument("fit", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path), help="The store to write, X.zarr.")
@click.option("--scheduler", help="The address of a Dask scheduler, tcp://...; by default threads of this process.")
@click.option("--explainer", default="rkhs-shap", show_default=True, help="The registered name of an explainer.")
@click.option("--value-function", help="The registered name of a value function.")
@click.option("--option", "options", multiple=True, metavar="NAME=JSON", help="An option of explainer or game.")
@click.option("--rows-per-block", default=4096, show_default=True, help="The rows of one task and of one file.")
@click.option("--seed", type=int, help="The random key, for explainers that sample.")
@click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error instead of one line.")
def explain(
    fit: Path,
    data: Path,
    output: Path,
    scheduler: str | None,
    options: tuple[str, ...],
    seed: int | None,
    quiet: bool,
    debug: bool,
    **settings: Any,
) -> None:
    """Explain the rows of DATA (Parquet or CSV) by the saved FIT, block by block.

    FIT is the output folder of `kpp run`, or a netCDF file of `kpp.Fit.save` or of `kpp.NamedFunction.save`. With the
    fit of a study, DATA and the explanation are in the units of its table, and the draws are those that the study has
    explained.

    If the run is interrupted, the same command goes on with the blocks that are not there. A store of another fit, of
    other data or of other options is refused.
    """
    with ExitStack() as stack:
        stack.enter_context(in_one_line("explain", *_ERRORS, debug=debug))
        if scheduler is not None:
            stack.enter_context(_connect(scheduler))
        import jax

        jax.config.update("jax_enable_x64", True)
        from kpp.explanations import NamedFunction
        from kpp.explanations.toolkit import holds_named_function
        from kpp_study.jobs.job import explain_to_store
        from kpp_study.study.study_fit import load_fit

        study = None if fit.is_file() and holds_named_function(fit) else load_fit(fit)
        explain_to_store(
            NamedFunction.load(fit) if study is None else study.thinned,
            _read(data),
            output,
            rng_key=None if seed is None else jax.random.key(seed),
            data_name=_digest(data),
            show_progress=not quiet,
            units=None if study is None else study.units,
            **settings,
            **_parse(options),
        )
    if not quiet:
        click.echo(f"Done. kpp.Explanation.load({str(output)!r}) reads it.")


def _connect(address: str) -> Any:
    try:
        from distributed import Client
        from distributed.comm.addressing import resolve_address
    except ImportError as error:
        raise ImportError(f"`--scheduler` needs distributed, which is an extra: {extra('dask')}") from error
    try:
        return Client(resolve_address(address), timeout=10)  # a Client of an unreadable address would stay the default
    except (OSError, ValueError) as error:
        raise OSError(f"`--scheduler` {address!r} does not answer: {error}") from error


def _read(path: Path) -> Any:
    """Return the table of a file, or of a folder of Parquet files, as a Dask data frame."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    try:
        import dask.dataframe as dd
    except ImportError as error:
        raise ImportError(f"`kpp explain` needs dask and pyarrow, an extra: {extra('dask')}") from error
    try:
        if path.suffix in _PARQUET or path.is_dir():
            return dd.read_parquet(path)
        if path.suffix in _CSV:
            return dd.read_csv(path)
    except Exception as error:  # the libraries raise errors of many types for a file that is damaged
        raise ValueError(f"{str(path)!r} can't be read: {error}") from error
    raise ValueError(f"{path.name!r} must end in {', '.join(_PARQUET + _CSV)}")


def _digest(path: Path) -> str:
    """Return a text that is the same for files of the same content."""
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            digest.update(file.name.encode())
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _parse(options: tuple[str, ...]) -> dict[str, Any]:
    found = {}
    for option in options:
        name, equals, text = option.partition("=")
        try:
            if not equals:
                raise ValueError("there is no =")
            found[name.replace("-", "_")] = json.loads(text)
        except ValueError as error:
            raise ValueError(f'`--option` must be NAME=JSON, such as method="quadrature", got {option!r}') from error
    return found
