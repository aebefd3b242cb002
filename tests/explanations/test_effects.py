"""Direct and indirect effects in explanations: posteriors, labels, and parts that add up."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import kpp
from kpp import Explanation
from kpp.games import Causal, direct_and_indirect_effects, shapley_covariance
from kpp.kernels import RBF
from kpp_models import GPRegression

RNG = np.random.default_rng(4)
A = RNG.normal(size=30)
ROWS = np.stack([A, 0.8 * A + 0.6 * RNG.normal(size=30)], axis=1)
FRAME = pd.DataFrame(ROWS, columns=["a", "b"])
OPTIONS = {"value_function": "causal", "graph": "dag { a -> b }", "effects": True}


@pytest.fixture(scope="module")
def fit():
    model, inference = GPRegression(RBF(jnp.ones(2)), noise_variance=0.1), kpp.MAP(progress=False)
    return model.fit(jax.random.key(0), FRAME, np.sin(ROWS[:, 1]), inference=inference, num_prior_samples=0)


@pytest.mark.slow
def test_effects_have_names_and_add_up_in_each_draw(fit):
    options = {"value_function": "interventional", "background": FRAME[:8], "effects": True}
    explained = kpp.explain(fit, FRAME[:3], rng_key=jax.random.key(0), **options)
    effects = explained.effects
    assert effects.dims == (*explained.values.dims, "effect")
    assert effects.coords["effect"].values.tolist() == ["direct", "indirect"]
    assert effects.coords["feature"].values.tolist() == ["a", "b"]
    np.testing.assert_allclose(effects.sum("effect"), explained.values, rtol=1e-9, atol=1e-12)
    assert explained.attrs["uncertainty"] == "full"
    assert "effects" in repr(explained)
    assert {"direct", "indirect"} < set(explained.to_dataframe().columns)
    assert explained.mean().effects.dims == ("instance", "feature", "effect")


@pytest.mark.nightly
def test_draws_have_the_law_of_the_parts(fit):
    explained = kpp.explain(fit, FRAME[:3], rng_key=jax.random.key(0), **OPTIONS)
    game = Causal(ROWS, "dag { a -> b }", feature_names=("a", "b"))
    means = direct_and_indirect_effects(game, fit.function(), ROWS[:3])
    law = fit.function_posterior(at="mean")
    covariance = np.asarray(shapley_covariance(game, law, ROWS[:3], effects=True))
    deviations = np.sqrt(np.einsum("pgg->pg", covariance)).reshape(3, 2, 2)  # instance, effect, feature
    drawn = explained.effects.transpose("chain", "draw", "instance", "effect", "feature").values[0]
    known = np.stack([np.asarray(part)[0, 0] for part in means], axis=1)
    # 200 draws: means have a standard error of 7 % of the deviation, and deviations one of 5 %.
    assert np.all(np.abs(drawn.mean(axis=0) - known) < 0.3 * deviations + 1e-6)
    np.testing.assert_allclose(drawn.std(axis=0), deviations, rtol=0.25, atol=1e-4)
    total = covariance.reshape(3, 2, 2, 2, 2).sum(axis=(1, 3))
    np.testing.assert_allclose(total, shapley_covariance(game, law, ROWS[:3]), rtol=1e-8, atol=1e-12)


@pytest.mark.slow
def test_the_covariance_of_parts_by_features():
    """Under a kernel of finite rank the covariance comes from the effects of its features."""
    kernel = kpp.features.Nystrom(RBF(jnp.ones(2)), ROWS[:6])
    game = Causal(ROWS[:8], "dag { a -> b }", feature_names=("a", "b"))
    parts = direct_and_indirect_effects(game, kernel.function(jnp.eye(6)), ROWS[:2])
    loads = np.concatenate([np.asarray(part) for part in parts], axis=1)
    found = shapley_covariance(game, kernel, ROWS[:2], effects=True)
    np.testing.assert_allclose(found, np.einsum("pgr,phr->pgh", loads, loads), rtol=1e-7, atol=1e-10)


@pytest.mark.slow
def test_effects_of_any_function():
    options = {**OPTIONS, "background": FRAME}
    found = kpp.explain(lambda x: np.tanh(x[:, 1]), FRAME[:2], explainer="kernel-shap", **options)
    game = Causal(ROWS, "dag { a -> b }", feature_names=("a", "b"))
    known = direct_and_indirect_effects(game, lambda x: np.tanh(x[:, 1]), ROWS[:2])
    np.testing.assert_allclose(found.effects, np.stack(known, axis=-1), rtol=1e-9, atol=1e-12)
    # b has no effects on others, up to the difference between the background and the Gaussian law.
    size = abs(found.effects.sel(feature="b")).mean("instance")
    assert size.sel(effect="indirect") < 0.1 * size.sel(effect="direct")


def test_effects_must_add_up_and_go_with_symmetric_values(fit):
    values = np.ones((2, 2))
    with pytest.raises(ValueError, match="`effects` must add up"):
        Explanation.create(values, 0.0, values.sum(axis=1), values, effects={"direct": values, "indirect": values})
    with pytest.raises(ValueError, match="leave out `order`"):
        kpp.explain(fit, FRAME[:1], order="dag { a -> b }", **OPTIONS)
    with pytest.raises(TypeError, match="beside the present ones"):
        kpp.explain(fit, FRAME[:1], value_function="observational", effects=True)
