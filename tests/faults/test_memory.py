"""What cannot fit into memory is refused before anything is allocated, with the numbers in the message."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import kpp
import kpp_models
from kpp import memory, programs, registry
from kpp.games import all_coalitions
from kpp.kernels import RBF

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
    monkeypatch.setattr("kpp.kernels.base._MAX_UNCHECKED", 0)
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
