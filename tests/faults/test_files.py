"""A write that is interrupted leaves the earlier result or the new one, and the next write leaves no hidden file."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import kpp
import kpp_models
from kpp.data.tables import Schema
from kpp.explanations import Explanation
from kpp.kernels import RBF
from kpp.runtime import files
from kpp.storage import arviz_data
from kpp_gpec import fitted_output
from kpp_study import StudyError
from kpp_study.study.output import FILES, check_output, output_folder


def entries(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def save_explanation(path: Path, number: float) -> None:
    Explanation.create([[number]], 0.0, [1.0], [[1.0]]).save(path)


def save_fit(path: Path, number: float) -> None:
    idata = arviz_data.from_groups({"posterior": xr.Dataset({"a": (("chain", "draw"), [[number]])})})
    model, draws = kpp_models.KernelRidge(RBF(), 0.1), {"a": jnp.array([[number]])}
    kpp.Fit(model, idata, {"x": np.full(2, number)}, None, draws, kpp.MAP()).save(path)


def save_gpec(path: Path, number: float) -> None:
    fitted_output.save(path, {"x": np.full((2, 1), number)}, {}, Schema(("a",), {}), ())


WRITERS = {"explanation": save_explanation, "fit": save_fit, "gpec": save_gpec}


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read_only(*_, **__):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def interrupt(*_, **__):
    raise KeyboardInterrupt


IN_PROCESS = {
    "a full disk while writing": (Path, "write_bytes", no_space),
    "a full disk found at the end": (os, "fsync", no_space),
    "a read-only folder": (Path, "write_bytes", read_only),
    "a rename that fails": (os, "replace", read_only),
    "Ctrl-C while writing": (Path, "write_bytes", interrupt),
    "Ctrl-C before the rename": (os, "replace", interrupt),
}


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize(("where", "name", "fault"), IN_PROCESS.values(), ids=IN_PROCESS)
def test_a_failed_save_keeps_the_earlier_file(writer, where, name, fault, tmp_path, monkeypatch):
    path = tmp_path / "result.nc"
    writer(path, 1.0)
    earlier = path.read_bytes()
    monkeypatch.setattr(where, name, fault)
    with pytest.raises((OSError, KeyboardInterrupt)):
        writer(path, 2.0)
    assert (entries(tmp_path), path.read_bytes()) == (["result.nc"], earlier)
    monkeypatch.undo()
    writer(path, 2.0)
    assert path.read_bytes() != earlier


# The child writes a half of the new result, or all of it, and waits at one step; the parent sends a signal.
CHILD = """
import os, shutil, signal, sys
from pathlib import Path
from kpp.runtime import files

def wait(*_, **__):
    print("waiting", flush=True)
    signal.pause()

signal.signal(signal.SIGINT, signal.default_int_handler)  # processes in the background of a shell ignore it
target, kind, step = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
if step != "write":
    where, name = {"flush": (os, "fsync"), "rename": (os, "replace"), "delete": (shutil, "rmtree")}[step]
    setattr(where, name, wait)
if kind == "file":
    with files.replace_when_complete(target) as partial:
        partial.write_text("new")
        if step == "write":
            wait()
else:
    if kind == "folder in two steps":
        files._exchange = lambda *_: False
        if step == "rename":
            Path.rename = lambda first, second, rename=os.rename: (
                wait() if first.name.endswith(".partial") else rename(first, second)
            )
    partial = files.temporary_path(target)
    partial.mkdir()
    (partial / "a").write_text("new")
    if step == "write":
        wait()
    files.replace_folder(partial, target)
"""
SIGNALS = ["SIGKILL", "SIGTERM", "SIGINT"]
STEPS = {
    "file": ["write", "flush", "rename"],
    "folder": ["write", "delete"],
    "folder in two steps": ["write", "rename", "delete"],
}
# The default suite holds one signal at each kind's most delicate step.
QUICK = {("file", "rename"), ("folder", "delete"), ("folder in two steps", "rename")}


def run_until_waiting(*arguments: str) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "waiting\n", process.communicate()[1]
    return process


def end(process: subprocess.Popen, name: str) -> None:
    process.send_signal(getattr(signal, name))
    try:
        process.communicate(timeout=30)
    finally:
        process.kill()  # nothing happens to one that has ended


def write_old(target: Path, kind: str) -> Path:
    """Write the earlier result, and return the file that holds its text."""
    if kind != "file":
        target.mkdir()
    held = target if kind == "file" else target / "a"
    held.write_text("old")
    return held


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("kind", "step", "name"),
    [
        pytest.param(kind, step, name, marks=[] if (kind, step) in QUICK and name == "SIGKILL" else pytest.mark.slow)
        for kind, steps in STEPS.items()
        for step in steps
        for name in SIGNALS
    ],
)
def test_a_killed_write_leaves_one_whole_result(kind, step, name, tmp_path):
    target = tmp_path / "result"
    held = write_old(target, kind)
    process = run_until_waiting(str(target), kind, step)
    assert len(entries(tmp_path)) == 2
    files.remove_leftovers(target)
    assert len(entries(tmp_path)) == 2, "the file of a running process is kept"
    end(process, name)
    files.remove_leftovers(target)
    assert entries(tmp_path) == ["result"]
    assert held.read_text() == ("new" if step == "delete" else "old")


def test_only_leftovers_of_ended_processes_of_the_same_target_are_deleted(tmp_path):
    target = tmp_path / "a[1].nc"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    mark = f"{files._MARK}-0"
    leftover = [f".a[1].nc.{files._HOST}.{ended.pid}.{mark}.partial", f".a[1].nc.{files._HOST}.{os.getpid()}.00-0.old"]
    others = [
        f".a[1].nc.{files._HOST}.{os.getppid()}.{mark}.partial",
        f".a[1].nc.{files._HOST}.{os.getpid()}.{mark}.partial",
        f".a[1].nc.another-computer.{ended.pid}.{mark}.partial",
        f".a1.nc.{files._HOST}.{ended.pid}.{mark}.partial",
        ".a[1].nc.partial",
        ".a[1].nc.notes",
    ]
    for name in ["a[1].nc", *leftover, *others]:
        (tmp_path / name).write_text("")
    files.remove_leftovers(target)
    assert entries(tmp_path) == sorted(["a[1].nc", *others])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_a_limit_on_the_size_of_files_is_an_error_and_not_a_crash(tmp_path):
    path = tmp_path / "result.nc"
    save_explanation(path, 1.0)
    code = (
        "import resource, sys, numpy as np, xarray as xr\nfrom kpp.storage import netcdf\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))\n"
        "data = xr.Dataset({'a': ('n', np.arange(50_000.0))})\n"
        "for groups in (None, {'group': data}):\n"
        "    try:\n        netcdf.write(sys.argv[1], data, groups)\n"
        "    except OSError as error:\n        print(error.strerror)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, 2 * f"{os.strerror(errno.EFBIG)}\n"), done.stderr
    assert entries(tmp_path) == ["result.nc"]
    assert Explanation.load(path).values.item() == 1.0


def fill(folder: Path, text: str) -> None:
    for name in FILES:
        (folder / name).write_text(text)


def write_folder(output: Path, text: str, **options: bool) -> None:
    with output_folder(output, **options) as folder:
        fill(folder, text)


FOLDER_FAULTS = {
    "a full disk found at the end": (os, "fsync", no_space),
    "Ctrl-C at the end": (os, "fsync", interrupt),
    "a rename that fails": (Path, "rename", read_only),
}


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize(("where", "name", "fault"), FOLDER_FAULTS.values(), ids=FOLDER_FAULTS)
def test_a_study_that_cannot_be_finished_keeps_the_earlier_one(exchange, where, name, fault, tmp_path, monkeypatch):
    output = tmp_path / "results"
    write_folder(output, "old")
    if not exchange:
        monkeypatch.setattr(files, "_exchange", lambda *_: False)
    elif name == "rename":
        monkeypatch.setattr(files, "_exchange", read_only)
    monkeypatch.setattr(where, name, fault)
    with pytest.raises((StudyError, OSError, KeyboardInterrupt)):
        write_folder(output, "new", overwrite=True)
    assert entries(tmp_path) == ["results"]
    assert {(output / name).read_text() for name in FILES} == {"old"}


def test_a_rename_that_fails_in_the_second_step_is_undone(tmp_path, monkeypatch):
    output = tmp_path / "results"
    write_folder(output, "old")
    monkeypatch.setattr(files, "_exchange", lambda *_: False)
    rename = os.rename
    monkeypatch.setattr(Path, "rename", lambda a, b: read_only() if a.name.endswith("partial") else rename(a, b))
    with pytest.raises(StudyError, match="results' can't be written"):
        write_folder(output, "new", overwrite=True)
    assert entries(tmp_path) == ["results"]
    assert (output / FILES[0]).read_text() == "old"


@pytest.mark.parametrize("exchange", [True, False])
def test_of_two_runs_into_one_output_one_is_whole(exchange, tmp_path, monkeypatch):
    if not exchange:
        monkeypatch.setattr(files, "_exchange", lambda *_: False)
    output = tmp_path / "results"
    with output_folder(output, overwrite=True) as first, output_folder(output, overwrite=True) as second:
        fill(first, "first")
        fill(second, "second")
    assert entries(tmp_path) == ["results"]
    assert {(output / name).read_text() for name in FILES} == {"first"}  # it ended last


def test_of_two_runs_that_may_not_overwrite_the_first_to_end_stays(tmp_path):
    output = tmp_path / "results"
    with pytest.raises(StudyError, match="add --overwrite"), output_folder(output) as first:
        fill(first, "first")
        write_folder(output, "second")
    assert entries(tmp_path) == ["results"]
    assert (output / FILES[0]).read_text() == "second"


def test_an_output_that_cannot_be_written_is_refused_before_the_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # also for root, who may write everywhere
    with pytest.raises(StudyError, match="can't be written"):
        check_output(tmp_path / "results", overwrite=False)


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path, monkeypatch, caplog):
    import jax

    from kpp_study.study.command import _set_up_jax

    (tmp_path / "file").write_text("")
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
        before = jax.config.jax_compilation_cache_dir
        _set_up_jax()
        assert jax.config.jax_compilation_cache_dir == before
    assert caplog.text.count("going on without a compile cache") == 2


# `kpp run` with a function that waits in place of one of its steps.
STUDY_CHILD = """
import signal, sys
from kpp_study.study import runner

def wait(*_, **__):
    print("waiting", flush=True)
    signal.pause()

signal.signal(signal.SIGINT, signal.default_int_handler)
step = sys.argv.pop(1)
setattr(runner if step == "render_report" else runner.StudyPlan, step, wait)
from kpp.__main__ import main
main()
"""
STUDY = """
[data]
path = "rows.csv"
target = "y"
[model]
name = "GPRegression"
noise_variance = 0.1
[model.kernel]
name = "RBF"
lengthscale = 1.0
[inference]
name = "MAP"
[explainer]
name = "rkhs-shap"
value_function = "interventional"
instances = [0, 1]
background = 4
"""


@pytest.mark.nightly_variants("render_report-SIGTERM", "render_report-SIGINT")
@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("step", "name"), [("fit", "SIGTERM"), ("explain", "SIGINT"), *(("render_report", name) for name in SIGNALS)]
)
def test_a_study_that_is_ended_leaves_the_earlier_results(step, name, tmp_path):
    rng = np.random.default_rng(0)
    pd.DataFrame(rng.normal(size=(12, 3)), columns=["a", "b", "y"]).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "study.toml").write_text(STUDY)
    parent = tmp_path / "results"
    output = parent / "here"
    output.mkdir(parents=True)
    fill(output, "old")
    command = ["run", str(tmp_path / "study.toml"), "--output", str(output), "--overwrite", "--quiet"]
    process = subprocess.Popen(
        [sys.executable, "-c", STUDY_CHILD, step, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "waiting\n", process.communicate()[1]
    end(process, name)
    assert process.returncode == {"SIGKILL": -signal.SIGKILL, "SIGTERM": 143, "SIGINT": 130}[name]
    kept = [] if step == "fit" else [".here.fit.nc"]  # for --resume
    if name != "SIGKILL":  # nobody has to clean up after the others
        assert entries(parent) == [*kept, "here"]
    write_folder(output, "new", overwrite=True)
    assert entries(parent) == [*kept, "here"]
    assert (output / FILES[0]).read_text() == "new"
