"""Starts of chains from Laplace's approximation, against posteriors in closed form, and what happens without a mode."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist

import kpp
from kpp.inference import ConvergenceError
from kpp.inference.base import inspect_sites
from kpp.inference.methods.starts import laplace_starts

KEY = jax.random.key(4)
DESIGN = np.random.default_rng(2).normal(size=(30, 3))
TARGET = DESIGN @ np.array([1.0, -2.0, 0.5]) + 0.3


def linear(x, y=None):
    """A linear regression: its posterior is Gaussian."""
    weights = numpyro.sample("weights", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ weights, 0.5).to_event(1), obs=y)


def square(y=None):
    """The sign of the location is unknown: two modes of equal mass, some 60 standard deviations apart."""
    location = numpyro.sample("location", dist.Normal(0.0, 3.0))
    numpyro.sample("y", dist.Normal(location**2, 0.5), obs=y)


def lopsided(share):
    """Two narrow modes at -3 and 3, the first one with a share of the mass."""
    location = numpyro.sample("location", dist.Normal(0.0, 3.0))
    weights = jnp.log(jnp.stack([share, 1.0 - share]))
    numpyro.factor("modes", jax.nn.logsumexp(weights - 0.5 * ((location - jnp.array([-3.0, 3.0])) / 0.2) ** 2))


def funnel():
    """Neal's funnel: the density is unbounded."""
    log_scale = numpyro.sample("log_scale", dist.Normal(0.0, 3.0))
    numpyro.sample("x", dist.Normal(0.0, jnp.exp(log_scale / 2)).expand([9]).to_event(1))


def run(model, data, **options):
    settings = {"num_warmup": 20, "num_samples": 20, "num_chains": 2, "progress": False, **options}
    return kpp.NUTS(**settings).run(KEY, model, data)


def test_the_approximation_of_a_gaussian_posterior_is_exact():
    data = {"x": DESIGN, "y": TARGET}
    starts = laplace_starts(KEY, linear, data, inspect_sites(linear, data), 4, False)
    precision = DESIGN.T @ DESIGN / 0.25 + np.eye(3) / 4.0
    # Central differences of a quadratic function have rounding errors only, eps^(2/3) = 4e-11 of the gradients' size.
    np.testing.assert_allclose(starts.covariances, np.stack([np.linalg.inv(precision)] * 4), rtol=1e-6)
    deviations = starts.positions["weights"] - np.linalg.solve(precision, DESIGN.T @ TARGET / 0.25)
    # The squares have the law 1.5^2 chi^2(3): beyond 2.25 * 30 with a probability of 1e-6 each.
    assert (np.einsum("ci,ij,cj->c", deviations, precision, deviations) < 2.25 * 30).all()
    assert np.ptp(starts.positions["weights"], axis=0).min() > 0
    assert starts.num_modes == 1


@pytest.mark.slow
def test_chains_start_in_both_modes_so_that_diagnostics_find_them():
    posterior = run(square, {"y": np.array(9.0)})
    assert posterior.attrs["modes"] == 2
    assert sorted(np.sign(posterior.samples["location"]).mean(axis=1).tolist()) == [-1.0, 1.0]
    between = numpyro.diagnostics.gelman_rubin(np.asarray(posterior.samples["location"]))
    assert between > 2


@pytest.mark.parametrize(("share", "modes"), [(0.3, 2), (1e-5, 1)])
def test_a_mode_without_noticeable_mass_gets_no_chain(share, modes):
    data = {"share": jnp.asarray(share)}
    starts = laplace_starts(KEY, lopsided, data, inspect_sites(lopsided, data), 2, False)
    assert starts.num_modes == modes
    assert starts.positions["location"].max() > 1.5


@pytest.mark.slow
def test_a_short_warmup_keeps_the_covariance_and_adapts_the_step():
    posterior = run(linear, {"x": DESIGN, "y": TARGET}, num_warmup=None, num_samples=200)
    assert posterior.attrs["init"] == "laplace"
    precision = DESIGN.T @ DESIGN / 0.25 + np.eye(3) / 4.0
    for matrix in posterior.state["inverse_mass_matrix"]:
        np.testing.assert_allclose(matrix, np.linalg.inv(precision), rtol=1e-6)
    # The target is .8; fifty steps of adaptation leave it within a tenth or so.
    assert 0.65 < posterior.sample_stats["acceptance_rate"].mean() < 0.97
    mean = np.linalg.solve(precision, DESIGN.T @ TARGET / 0.25)
    spread = np.sqrt(np.diag(np.linalg.inv(precision)))
    # 400 draws, half of them taken as effective: five standard errors.
    assert (np.abs(posterior.samples["weights"].mean((0, 1)) - mean) < 5 * spread / np.sqrt(200)).all()


@pytest.mark.slow
def test_a_long_warmup_adapts_the_mass_matrix():
    posterior = run(linear, {"x": DESIGN, "y": TARGET}, num_warmup=400)
    covariance = np.linalg.inv(DESIGN.T @ DESIGN / 0.25 + np.eye(3) / 4.0)
    assert not np.allclose(posterior.state["inverse_mass_matrix"], covariance, rtol=1e-6)


@pytest.mark.slow
def test_without_a_mode_chains_start_at_random_and_the_log_says_it(caplog):
    with caplog.at_level(logging.INFO, "kpp"):
        posterior = run(funnel, {})
    assert "chains start at random" in caplog.text
    assert posterior.attrs["init"] == "uniform"
    assert posterior.state["inverse_mass_matrix"].ndim == 2  # diagonal
    with pytest.raises(ConvergenceError, match="converged"):
        run(funnel, {}, init="laplace")


@pytest.mark.nightly
def test_many_parameters_start_at_random_unless_asked(caplog):
    def wide(y=None):
        location = numpyro.sample("location", dist.Normal(0.0, 1.0).expand([51]).to_event(1))
        numpyro.sample("y", dist.Normal(location, 1.0).to_event(1), obs=y)

    data = {"y": np.ones(51)}
    with caplog.at_level(logging.INFO, "kpp"):
        assert run(wide, data).attrs["init"] == "uniform"
    assert "more than 50 parameters" in caplog.text
    posterior = run(wide, data, init="laplace")
    assert posterior.state["inverse_mass_matrix"].shape == (2, 51)  # a diagonal mass matrix
    np.testing.assert_allclose(posterior.state["inverse_mass_matrix"], 0.5, rtol=1e-6)


def test_chains_in_threads_are_the_chains_one_after_the_other():
    data = {"x": DESIGN, "y": TARGET}
    together, in_turn = (
        run(linear, data, num_warmup=None, num_samples=200, chain_method=method) for method in (None, "sequential")
    )
    np.testing.assert_array_equal(together.samples["weights"], in_turn.samples["weights"])
    assert together.attrs["chain_method"] == "parallel"


@pytest.mark.nightly
def test_each_chain_has_a_device_where_there_are_enough():
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    script = Path(__file__).with_name("devices.py")
    subprocess.run([sys.executable, str(script)], env=environment, check=True, timeout=300)


@pytest.mark.nightly
def test_two_processes_draw_the_chains_of_one(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(__file__).with_name("processes.py")

    def start(process: int, num_processes: int) -> subprocess.Popen:
        flags = f"--xla_force_host_platform_device_count={4 // num_processes}"
        environment = os.environ | {"XLA_FLAGS": flags, "JAX_ENABLE_X64": "1"}
        output = tmp_path / f"{process}_of_{num_processes}.npz"
        command = [sys.executable, str(script), str(process), str(num_processes), str(port), str(output)]
        return subprocess.Popen(command, env=environment)

    alone = start(0, 1)
    assert alone.wait(timeout=200) == 0
    pair = [start(process, 2) for process in range(2)]
    assert [process.wait(timeout=200) for process in pair] == [0, 0]
    known, *found = (np.load(tmp_path / f"{name}.npz") for name in ("0_of_1", "0_of_2", "1_of_2"))
    for draws in found:
        for name in ("first", "more"):
            np.testing.assert_array_equal(draws[name], known[name])


def test_a_delta_in_place_of_a_prior_is_refused():
    with pytest.raises(ValueError, match=r"\['scale'\] have a Delta distribution, which is no prior: give the number"):
        kpp.MAP().run(jax.random.key(0), lambda: numpyro.sample("scale", dist.Delta(1.0)), {})
