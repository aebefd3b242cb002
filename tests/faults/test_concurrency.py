"""Threads and processes that compute at the same time get the same numbers; forked processes are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import dask
import jax
import joblib
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from numpyro import handlers, primitives
from sklearn.model_selection import GridSearchCV

import kpp
from kpp.kernels import RBF
from kpp.runtime.handler_stack import separate_threads
from kpp_models import GPRegression
from kpp_models.estimators import GPRegressor


@pytest.mark.slow
def test_eight_threads_get_the_same_numbers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 3))
    function = kpp.RKHSFunction(RBF(1.0), x, rng.normal(size=6))

    def explain(_: int) -> np.ndarray:
        return kpp.explain(function, x[:2], explainer="rkhs-shap", background=x).values.to_numpy()

    alone = explain(0)
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(explain, range(16)))
    for values in together:
        np.testing.assert_array_equal(values, alone)


def test_models_that_run_in_two_threads_see_the_handlers_of_their_own_thread():
    both = threading.Barrier(2, timeout=60)

    def sites(name: str) -> list[str]:
        def model():
            both.wait()  # the other thread has entered its handlers, too
            numpyro.sample(name, dist.Normal())
            both.wait()
            with numpyro.plate(f"rows of {name}", 2):
                both.wait()
                numpyro.sample(f"{name} again", dist.Normal())

        return list(handlers.trace(handlers.seed(model, jax.random.key(0))).get_trace())

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(sites, ("a", "b")))
    assert found == [[name, f"rows of {name}", f"{name} again"] for name in ("a", "b")]


def test_a_handler_that_is_active_when_threads_are_separated_stays_so_in_its_thread(monkeypatch):
    monkeypatch.setattr(primitives, "_PYRO_STACK", ["active"])
    separate_threads()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(len, primitives._PYRO_STACK).result() == 0
    assert primitives._PYRO_STACK == ["active"]


ROWS, TARGETS = np.random.default_rng(0).normal(size=(2, 9, 1))
QUIET = {"progress": False}
MAP = kpp.MAP(num_restarts=0, max_steps=20, **QUIET)
INFERENCES = {
    "MAP": MAP,
    "Laplace": kpp.Laplace(num_restarts=0, num_samples=3, **QUIET),
    "SVI": kpp.SVI(num_steps=5, num_samples=3, **QUIET),
    "NUTS": kpp.NUTS(num_warmup=3, num_samples=3, num_chains=1, **QUIET),
}
POOLS = {
    "threads": lambda f, tasks: list(ThreadPoolExecutor(4).map(f, tasks)),
    "Dask": lambda f, tasks: dask.compute(*map(dask.delayed(f), tasks), scheduler="threads", num_workers=4),
    "joblib": lambda f, tasks: joblib.Parallel(4, backend="threading")(map(joblib.delayed(f), tasks)),
}


def fit(number: int, inference: kpp.AbstractInference = MAP) -> kpp.Fit:
    x, y = ROWS[: 8 + number % 2], TARGETS[: 8 + number % 2, 0]
    model = GPRegression(RBF(dist.LogNormal(0.0, 0.5)), 0.1)
    return model.fit(jax.random.key(number), x, y, inference=inference, num_prior_samples=2)


def fit_and_predict(number: int, inference: kpp.AbstractInference = MAP) -> xr.Dataset:
    return fit(number, inference).predict(ROWS[:3])


@pytest.mark.slow
@pytest.mark.parametrize("pool", POOLS)
def test_fits_in_threads_give_the_numbers_of_fits_one_after_the_other(pool):
    together = POOLS[pool](fit_and_predict, range(6))
    for number, found in enumerate(together):
        xr.testing.assert_identical(found, fit_and_predict(number))


@pytest.mark.nightly_variants("Laplace", "SVI")
@pytest.mark.slow
@pytest.mark.parametrize("name", INFERENCES)
def test_fits_by_every_inference_can_be_made_in_threads(name):
    def run(number: int) -> xr.Dataset:
        return fit_and_predict(number, INFERENCES[name])

    together = POOLS["threads"](run, range(8))
    for number, found in enumerate(together):
        xr.testing.assert_identical(found, run(number))


@pytest.mark.slow
def test_the_first_predictions_of_a_fit_may_be_asked_for_by_many_threads():
    fitted = fit(0)

    def answer(number: int) -> np.ndarray:  # as a web server does
        key = jax.random.key(number)
        return np.append(fitted.predict(ROWS[:2])["mean"], fitted.sample_predictive(key, ROWS[:2], 2))

    together = POOLS["threads"](answer, range(4))
    np.testing.assert_array_equal(together, [answer(number) for number in range(4)])


@pytest.mark.slow
def test_a_grid_search_in_threads_of_joblib_gives_the_scores_of_one_without():
    search = GridSearchCV(GPRegressor(random_state=0), {"noise_variance": [0.1, 1.0]}, cv=2, error_score="raise")
    with joblib.parallel_config("threading", n_jobs=4):
        together = search.fit(ROWS, TARGETS[:, 0]).cv_results_["mean_test_score"]
    alone = search.fit(ROWS, TARGETS[:, 0]).cv_results_["mean_test_score"]
    np.testing.assert_array_equal(together, alone)


# Draws by NUTS, predictions, and draws of the values under their law: all that uses random numbers.
SCRIPT = """
import json, multiprocessing, os, sys
from concurrent.futures import ProcessPoolExecutor

import jax
import joblib
import numpy as np
import numpyro.distributions as dist

import kpp
from kpp.kernels import RBF
from kpp_models import GPRegression


def results(_=None):
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    model = GPRegression(RBF(dist.LogNormal(0.0, 0.5)), 0.1)
    nuts = kpp.NUTS(num_warmup=20, num_samples=20, num_chains=1, progress=False)
    fit = model.fit(jax.random.key(0), x, y, inference=nuts, num_prior_samples=0)
    drawn = fit.sample_predictive(jax.random.key(1), x, 5)
    values = kpp.explain(fit, x[:2], rng_key=jax.random.key(2)).values
    return [drawn.values.tobytes().hex(), values.values.tobytes().hex()]


def in_a_forked_process():
    fit = GPRegression(RBF(1.0), 0.1).fit(
        jax.random.key(0), np.eye(3), np.ones(3), inference=kpp.MAP(progress=False), num_prior_samples=0
    )
    calls = {
        "explain": lambda: kpp.explain(fit, np.eye(3)),
        "fit": lambda: fit.model.fit(jax.random.key(0), np.eye(3), np.ones(3)),
        "predict": lambda: fit.predict(np.eye(3)),
    }
    read, write = os.pipe()
    if os.fork():
        os.close(write)
        with os.fdopen(read) as pipe:
            return json.load(pipe)
    messages = {}
    for name, call in calls.items():
        try:
            call()
        except RuntimeError as error:
            messages[name] = str(error)
    with os.fdopen(write, "w") as pipe:
        json.dump(messages, pipe)
    os._exit(0)


if __name__ == "__main__":
    found = {"main": results()}
    if sys.argv[1] == "all":
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            found["spawn"] = pool.submit(results).result()
        found["joblib"], _ = joblib.Parallel(n_jobs=2)(joblib.delayed(results)(index) for index in range(2))
        found["forked"] = in_a_forked_process()
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def in_processes(tmp_path_factory):
    """The results of two runs of the script, the first of which also starts processes."""
    script = tmp_path_factory.mktemp("processes") / "script.py"
    script.write_text(SCRIPT)

    def run(what: str) -> dict[str, object]:
        command = [sys.executable, "-W", "ignore", str(script), what]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run("all"), run("one")


@pytest.mark.nightly
def test_the_same_seed_gives_the_same_bits_in_every_process(in_processes):
    first, second = in_processes
    assert first["main"] == first["spawn"] == first["joblib"] == second["main"]


@pytest.mark.nightly_variants("explain")
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads have names that can be read on Linux only")
@pytest.mark.parametrize("name", ["explain", "fit", "predict"])
def test_a_process_that_was_forked_after_jax_had_started_is_refused(name, in_processes):
    assert "forked after JAX had started" in in_processes[0]["forked"][name]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_process_that_was_forked_before_jax_started_computes():
    script = (
        "import os, kpp\n"
        "if os.fork():\n"
        "    raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
        "from kpp.runtime.forks import refuse_forked_process\n"
        "refuse_forked_process()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
