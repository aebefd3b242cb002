"""What cannot fit into memory is refused before anything is allocated, with the numbers in the message."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest

import kpp
import kpp_models
from kpp import registry
from kpp.calibration import simulation_based_calibration
from kpp.embeddings import (
    ConditionalMeanEmbedding,
    conditional_independence_test,
    hsic,
    mean_independence_test,
    two_sample_test,
)
from kpp.features import RandomFourier
from kpp.games import all_coalitions
from kpp.games.estimators.sampled.sampling import sample_permutations
from kpp.kernels import RBF
from kpp.metrics import uniform_band
from kpp.runtime import batching, memory, programs
from kpp_gpec.boundary.bisection_sampler import BisectionSampler
from kpp_gpec.boundary.brackets import CountedMargin
from kpp_gpec.boundary.gradient import GradientSampler
from kpp_gpec.boundary.pgd import PGDSampler
from kpp_models import instrumental_regression

MODELS = {
    "GPRegression": kpp_models.GPRegression(RBF(), noise_variance=0.1),
    "GPClassification": kpp_models.GPClassification(RBF()),
    "KernelRidge": kpp_models.KernelRidge(RBF(), 0.1),
    "KernelLogistic": kpp_models.KernelLogistic(RBF(), 0.1),
}


@pytest.mark.parametrize("name", MODELS)
def test_an_exact_fit_of_too_many_rows_is_refused(name, monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 16 * 10**9)
    x, y = np.zeros((30_000, 1)), np.arange(30_000) % 2.0
    advice = r"use latent='inducing' with.*, or fit fewer" if name.startswith("GP") else "fit fewer"
    message = (
        rf"{name} on n = 30000 rows of `x`.*\(7\.2 GB each.* 28\.8 GB \(28800000000 bytes\), and 16\.0 GB are "
        rf"available; {advice}"
    )
    with pytest.raises(ValueError, match=message):
        MODELS[name].fit(jax.random.key(0), x, y)


@pytest.mark.parametrize("name", sorted(registry.models()))
def test_a_matrix_that_does_not_fit_is_refused_by_every_model(name, monkeypatch):
    """Every registered model computes some matrix of all pairs; here the smallest one does not fit."""
    model, *data = next(iter(registry.models()[name].examples(jax.random.key(0))))
    monkeypatch.setattr(memory, "available_memory", lambda: 8)
    monkeypatch.setattr("kpp.kernels.parameters._MAX_UNCHECKED", 0)
    with pytest.raises(ValueError, match=r"needs at least .* available; (use|fit) fewer"):
        model.fit(jax.random.key(0), *data, inference=kpp.MAP(progress=False, num_restarts=0), num_prior_samples=0)


def test_too_many_features_to_enumerate_are_refused():
    with pytest.raises(ValueError, match="from 1 to 20 to enumerate all coalitions, got 25"):
        all_coalitions(25)


def test_the_available_memory_is_that_of_the_container_if_it_is_less(tmp_path, monkeypatch):
    (tmp_path / "meminfo").write_text("MemTotal:  9000 kB\nMemAvailable:  8000 kB\n")
    monkeypatch.setattr(memory, "_SYSTEM", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    assert memory.available_memory() == 8000 * 1024
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 700\ninactive_file 300\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_memory() == 8000 * 1024
    (tmp_path / "memory.max").write_text("5000\n")
    assert memory.available_memory() == 4300


def test_memory_that_is_not_known_refuses_nothing(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    memory.check_memory(10**18, "a fit", "fit fewer rows")


@pytest.mark.slow_variants("100-True")
@pytest.mark.parametrize(("allowed", "released"), [(10**9, False), (100, True)])  # this process has thousands
def test_programs_are_released_at_half_of_the_regions_that_a_process_may_have(allowed, released, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(jax, "clear_caches", lambda: calls.append(allowed))
    monkeypatch.setattr(programs, "_LIMIT", tmp_path / "max_map_count")
    monkeypatch.setattr(programs, "_BETWEEN", 1)
    programs._LIMIT.write_text(str(allowed))
    jax.jit(lambda x: 2.0 * x)(1.0)  # a new program
    assert programs.release_programs() is released
    assert len(calls) == released


@pytest.mark.slow  # what the tests of this process have compiled is compiled again
def test_released_programs_are_gone_and_can_be_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "_LIMIT", tmp_path / "max_map_count")
    monkeypatch.setattr(programs, "_BETWEEN", 1)
    programs._LIMIT.write_text("100")
    double = jax.jit(lambda x: 2.0 * x)
    double(np.ones(2))
    assert programs.release_programs()
    assert double._cache_size() == 0
    np.testing.assert_array_equal(double(np.ones(2)), [2.0, 2.0])


def test_regions_are_counted_only_after_many_compilations(monkeypatch):
    monkeypatch.setattr(programs, "_compiled", programs._BETWEEN - 1)
    monkeypatch.setattr(programs, "_LIMIT", None)  # would fail if it were read
    assert programs.release_programs() is False


MANY = 10**9
KEY = jax.random.key(0)
X, Y = np.random.default_rng(0).normal(size=(2, 8, 2))
LARGE = np.arange(30_000.0)[:, None]


def fit_of(inference=kpp.MAP(num_restarts=0, progress=False), num_prior_samples=0):  # noqa: B008
    return kpp_models.GPRegression(RBF(), 0.1).fit(
        KEY, X, Y[:, 0], inference=inference, num_prior_samples=num_prior_samples
    )


def explain(explainer: str, **options: int):
    return kpp.explain(lambda x: x.sum(1), np.eye(40), explainer=explainer, background=np.eye(40), **options)


def search(sampler: type, **options: int):
    return sampler(**options).search(np.random.default_rng(0), CountedMargin(lambda points: points[:, 0]), X)


TOO_MUCH = {
    "permutations of two samples": (lambda: two_sample_test(KEY, RBF(), X, Y, num_permutations=MANY), 256),
    "permutations of HSIC": (lambda: conditional_independence_test(KEY, X, Y, num_permutations=MANY), 24),
    "signs": (lambda: conditional_independence_test(KEY, X, Y, X, num_permutations=MANY), 128),
    "permutations of means": (lambda: mean_independence_test(KEY, Y[:, 0], X, num_permutations=MANY), 128),
    "permutations of players": (lambda: sample_permutations(KEY, 5, MANY), 80),
    "draws of Laplace": (lambda: fit_of(kpp.Laplace(num_samples=MANY, progress=False)), 128),
    "draws of SVI": (lambda: fit_of(kpp.SVI(num_samples=MANY, progress=False)), 128),
    "draws of NUTS": (lambda: fit_of(kpp.NUTS(num_samples=MANY, progress=False)), 128),
    "draws of the prior": (lambda: fit_of(num_prior_samples=MANY), 128),
    "predictive draws": (lambda: fit_of().sample_predictive(KEY, X, MANY), 64),
    "simulated bands": (lambda: uniform_band(10, 10, num_simulations=MANY), 160),
    "data sets": (lambda: simulation_based_calibration(KEY, lambda: None, {}, num_datasets=MANY), 504),
    "frequencies": (lambda: RandomFourier.approximate(KEY, RBF(), MANY, 2), 16),
    "coalitions": (lambda: explain("kernel-shap", num_coalitions=MANY, rng_key=KEY), 648),
    "perturbations": (lambda: explain("lime", num_perturbations=MANY, rng_key=KEY), 320),
    "pairs of a boundary": (lambda: search(BisectionSampler, num_pairs=MANY), 32),
    "starts of a boundary": (lambda: search(GradientSampler, num_starts=MANY), 32),
    "seeds of a boundary": (lambda: search(PGDSampler, num_seeds=MANY), 32),
    "rows of HSIC": (lambda: hsic(RBF(), RBF(), LARGE, LARGE), 21.6),
    "rows of biased HSIC": (lambda: hsic(RBF(), RBF(), LARGE, LARGE, unbiased=False), 21.6),
    "rows of instruments": (lambda: instrumental_regression(LARGE, LARGE[:, 0], LARGE), 36),
    "rows of two samples": (lambda: two_sample_test(KEY, RBF(), LARGE, LARGE), 57.6),
    "rows of a test": (lambda: conditional_independence_test(KEY, LARGE, LARGE, LARGE, max_rows=30_000), 43.2),
    "rows of an embedding": (
        lambda: ConditionalMeanEmbedding(
            kernel=RBF(), input_kernel=RBF(), points=LARGE, inputs=LARGE, regularization=0.1
        ).weights(LARGE[:2]),
        21.6,
    ),
    "a joint covariance": (lambda: fit_of().predict(np.tile(LARGE, 2), covariance=True), 7.2),
}


@pytest.mark.parametrize(("call", "gigabytes"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_a_count_that_does_not_fit_is_refused_with_the_numbers(call, gigabytes, monkeypatch):
    """The bytes are those of the smallest arrays that the computation cannot do without."""
    monkeypatch.setattr(memory, "available_memory", lambda: 6 * 10**9)
    with pytest.raises(ValueError, match=rf"needs at least {gigabytes:.1f} GB .* and 6\.0 GB are available; .*"):
        call()


def test_results_of_blocks_that_do_not_fit_are_refused_after_the_first_block(monkeypatch):
    monkeypatch.setattr("kpp.runtime.batching._UNCHECKED", 0)
    monkeypatch.setattr(memory, "available_memory", lambda: 100)
    with pytest.raises(ValueError, match=r"the rest of the results, 4 more blocks, needs at least .*\(128 bytes\)"):
        batching.map_blocks(lambda rows: rows, np.ones(20), 4)


def test_a_long_computation_is_told_after_the_first_block_and_a_short_one_is_not(monkeypatch, caplog):
    batching.map_blocks(lambda rows: rows, np.ones(20), 4)
    assert not caplog.text
    monkeypatch.setattr(batching, "_LONG", 0.0)
    batching.map_blocks(lambda rows: rows, np.ones(20), 4)
    assert re.search(r"the first of 5 blocks took .* s, so all of them may take .* minutes", caplog.text)
    caplog.clear()
    batching.map_blocks(lambda rows: rows, np.ones(20), 20)  # one block has nothing to tell
    assert not caplog.text
