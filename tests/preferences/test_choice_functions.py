"""The model of the guide to choice functions, whose code it takes from the page, against loops over options."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from numpyro import handlers
from scipy.stats import norm

import kpp


@pytest.fixture(scope="module")
def page(root: Path) -> dict[str, Any]:
    """The names that the page defines before it fits."""
    text = (root / "docs" / "how_to" / "choice_functions.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for code in re.findall(r"^```{code-cell}\n(.*?)^```$", text.partition("## Fit")[0], re.DOTALL | re.MULTILINE):
        exec(code, names)
    return names


def probability_to_dominate(u: np.ndarray, i: int, j: int) -> float:
    return math.prod(norm.cdf(u[i, k] - u[j, k]) for k in range(u.shape[1]))


def likelihood(u: np.ndarray, choice: np.ndarray) -> float:
    """The published likelihood, one comparison after the other."""
    chosen, rejected = np.flatnonzero(choice), np.flatnonzero(choice == 0)
    value = 1.0
    for i, j in itertools.combinations(chosen, 2):
        value *= 1 - probability_to_dominate(u, i, j) - probability_to_dominate(u, j, i)
    for j in rejected:
        value *= 1 - math.prod(1 - probability_to_dominate(u, i, j) for i in chosen)
    return value


def pareto_set(u: np.ndarray) -> set[int]:
    options = range(len(u))
    return {j for j in options if not any(all(a > b for a, b in zip(u[i], u[j], strict=True)) for i in options)}


@pytest.mark.slow_variants("3")
@pytest.mark.parametrize("num_utilities", [2, 3])
def test_the_likelihood_of_each_choice_is_that_of_loops(page: dict[str, Any], num_utilities: int):
    u = np.random.default_rng(num_utilities).normal(size=(4, num_utilities))
    choices = page["all_choices"](4)
    assert {tuple(row) for row in choices} == {*itertools.product([0.0, 1.0], repeat=4)} - {(0.0,) * 4}
    expected = [likelihood(u, choice) for choice in choices]
    np.testing.assert_allclose(np.exp(page["log_likelihoods"](u, choices)), expected, rtol=1e-8)


@pytest.mark.slow
def test_the_likelihood_is_normalized_for_two_options_alone(page: dict[str, Any]):
    u = np.random.default_rng(0).normal(size=(3, 2))
    pair, three = (np.exp(page["log_likelihoods"](u[:n], page["all_choices"](n))).sum() for n in (2, 3))
    assert pair == pytest.approx(1.0, abs=1e-9)
    assert abs(three - 1.0) > 0.01


@pytest.mark.slow
def test_with_one_utility_only_single_options_are_chosen(page: dict[str, Any]):
    u = np.random.default_rng(0).normal(size=(4, 1))
    choices = page["all_choices"](4)
    values = np.asarray(page["log_likelihoods"](u, choices))
    assert values[choices.sum(axis=1) > 1].max() < -20.0 < values[choices.sum(axis=1) == 1].min()


@pytest.mark.slow
@pytest.mark.parametrize("num_utilities", [1, 2, 3])
def test_without_noise_the_pareto_set_is_the_likeliest_of_all_subsets(page: dict[str, Any], num_utilities: int):
    rng = np.random.default_rng(num_utilities)
    choices = page["all_choices"](5)
    sizes = set()
    for _ in range(50):
        u = rng.permuted(np.tile(np.arange(5.0)[:, None], num_utilities), axis=0)  # no utility has ties
        values = np.asarray(page["log_likelihoods"](1e3 * u, choices))
        best = values.argmax()
        assert set(np.flatnonzero(choices[best])) == pareto_set(u)
        assert values[best] == pytest.approx(0.0, abs=1e-6) and np.delete(values, best).max() < -20.0
        np.testing.assert_array_equal(page["undominated"](u), choices[best] == 1)
        sizes.add(len(pareto_set(u)))
    assert len(sizes) == 1 if num_utilities == 1 else len(sizes) > 2


@pytest.mark.slow
def test_the_density_of_the_model_is_that_of_loops(page: dict[str, Any]):
    """At the values of one draw: the normalized likelihood, of which a share is replaced by chance."""
    sets, choice = page["sets"][:3], page["number"](page["picked"][:3])
    np.testing.assert_array_equal(page["choices"][choice], page["picked"][:3])
    model = handlers.seed(page["choice_model"], jax.random.key(0))
    trace = handlers.trace(model).get_trace(page["hotels"][:30], sets, choice)
    draw = {name: np.asarray(site["value"]) for name, site in trace.items() if site["type"] == "sample"}
    u = np.empty((30, 2))
    for k in range(2):
        x = page["hotels"][:30] / draw["kernel.lengthscale"][k]
        gram = draw["kernel.variance"][k] * np.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(axis=-1))
        u[:, k] = np.linalg.cholesky(gram + 1e-6 * np.eye(30)) @ draw["z"][k]
    expected = []
    for options, index in zip(sets, choice, strict=True):
        values = [likelihood(u[options], each) for each in page["choices"]]
        expected.append((1 - draw["lapse"]) * values[index] / sum(values) + draw["lapse"] / 15)
    log_prob = trace["choice"]["fn"].log_prob(choice)
    np.testing.assert_allclose(log_prob, np.log(expected), atol=1e-6)


@pytest.mark.slow
def test_further_items_are_drawn_given_the_utilities_of_the_others(page: dict[str, Any]):
    """With zeros for their whitened values they have the mean given the others, and these do not change."""
    rng = np.random.default_rng(0)
    x, z = rng.uniform(-2, 2, size=(9, 2)), rng.normal(size=(1, 6))
    kernels = jax.tree.map(lambda value: value[None], kpp.kernels.RBF(np.ones(2), variance=np.array(2.0)))
    old = page["utilities"](kernels, x[:6], z)
    both = page["utilities"](kernels, x, np.pad(z, ((0, 0), (0, 3))))
    gram = 2.0 * np.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(axis=-1)) + 1e-6 * np.eye(9)
    np.testing.assert_allclose(both[:6], old, atol=1e-10)
    np.testing.assert_allclose(both[6:], gram[6:, :6] @ np.linalg.solve(gram[:6, :6], old), atol=1e-8)
