"""Batched solves that run at once must not wait for each other."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpyro.distributions
import pytest
from threadpoolctl import threadpool_info

from kpp.runtime import threads
from kpp.runtime.handler_stack import separate_threads

# Each solve takes a thread of XLA's pool and waits there for others of the same pool.
SOLVES = """
import kpp, jax, jax.numpy as jnp, numpy as np
from kpp.linalg import cholesky
from kpp.linalg import solve_lower

@jax.jit
def add_up(matrices, sides):
    factors = jax.vmap(cholesky)(matrices)

    def step(total, _):
        parts = [jax.vmap(solve_lower)(factors, side + total).sum() for side in sides]
        return total + 1e-9 * sum(parts), None

    return jax.lax.scan(step, 0.0, None, length=50)[0]

rng = np.random.default_rng(0)
matrices = rng.normal(size=(8, 100, 100)).astype(np.float32)
matrices = matrices @ matrices.transpose(0, 2, 1) + 100 * np.eye(100, dtype=np.float32)
sides = list(rng.normal(size=(4, 8, 100, 100)).astype(np.float32))
for _ in range(5):
    add_up(matrices, sides).block_until_ready()
print("done")
"""


def run(code: str, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "NPROC"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        env={**kept, **environment},
        timeout=200,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.slow
def test_concurrent_batched_solves_come_to_an_end():
    assert run(SOLVES) == "done"  # without more threads they hang on a machine with two cores and JAX 0.10


def test_a_thread_of_a_call_makes_no_threads_of_its_own():
    def names(_: int) -> list[str]:
        return threads.call_in_threads(lambda _: threading.current_thread().name, range(3), 2)

    inner = threads.call_in_threads(names, range(2), 2)
    assert [len(set(used)) for used in inner] == [1, 1]
    assert threading.current_thread().name not in inner[0]
    assert threads.call_in_threads(str, range(4), 2) == list("0123")  # afterwards threads are made again


def test_blas_has_one_thread_until_the_last_user_leaves():
    def sizes() -> set[int]:
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    before = sizes()
    first, second = threads.one_blas_thread(), threads.one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)  # the order in which two threads may leave
    assert sizes() == {1}
    second.__exit__(None, None, None)
    assert sizes() == before


@pytest.mark.parametrize(
    ("version", "given", "expected"),
    [("0.10.2", None, True), ("0.11.1", None, True), ("0.11.2", None, False), ("0.12.0.1", None, False)]
    + [("0.10.2", "3", "3")],
)
def test_only_where_needed_and_not_against_the_user(monkeypatch, version, given, expected):
    monkeypatch.setattr(threads.importlib.metadata, "version", lambda name: version)
    monkeypatch.delenv("NPROC", raising=False)
    if given is not None:
        monkeypatch.setenv("NPROC", given)
    threads.enlarge_thread_pool()
    found = os.environ.pop("NPROC", None)
    if isinstance(expected, str):
        assert found == expected
    else:
        assert (found is not None and int(found) >= 32) is expected


def test_another_thread_may_lift_the_limit_of_blas():
    def counts():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before, events = counts(), [threading.Event() for _ in range(4)]
    begun, may_leave, has_left, over = events

    def first():
        with threads.one_blas_thread():
            begun.set()
            may_leave.wait(10)
        has_left.set()
        over.wait(10)  # a thread of a pool lives on

    thread = threading.Thread(target=first)
    thread.start()
    begun.wait(10)
    with threads.one_blas_thread():
        may_leave.set()
        has_left.wait(10)
        assert set(counts()) == {1}
    after = counts()
    over.set()
    thread.join()
    assert after == before


def test_packages_of_numpyro_get_the_modules_that_a_lazy_import_has_left_out(monkeypatch):
    monkeypatch.delattr(numpyro.distributions, "distribution")
    separate_threads()
    assert numpyro.distributions.distribution is sys.modules["numpyro.distributions.distribution"]


@pytest.mark.slow
def test_models_run_after_arviz_and_then_a_package_of_numpyro():
    program = "import arviz, numpyro.distributions, kpp; kpp.NUTS(); numpyro.distributions.distribution.Unit(0.0)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
