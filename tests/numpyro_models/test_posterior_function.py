"""The function of a NumPyro model against NumPyro's own Predictive, and what it refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr
from numpyro import handlers
from numpyro.infer import Predictive
from numpyro.infer.reparam import LocScaleReparam

import kpp
from kpp.storage import arviz_data

INPUTS = ("x", "group")
ONE_COLUMN = np.random.default_rng(2).normal(size=(9, 1))
SLOPES = np.array([[0.5, -1.0]])


@pytest.fixture(scope="module")
def function(model, draws, data):
    return kpp.posterior_function(model, draws, data=data, inputs=INPUTS)


def groups_of(draws):
    """The draws as an object of the installed ArviZ: InferenceData, or xarray's DataTree."""
    dims = {name: ("chain", "draw", *[f"{name}_{i}" for i in range(value.ndim - 2)]) for name, value in draws.items()}
    dataset = xr.Dataset({name: (dims[name], value) for name, value in draws.items()})
    return arviz_data.from_groups({"posterior": dataset})


def flat(draws):
    return {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}


def test_the_values_are_those_of_predictive(function, model, draws, new_rows):
    """NumPyro's own program, at the new rows: with them, the constant plate would not fit the observations."""
    rows = np.tile(new_rows, (4, 1))
    arguments = {"x": jnp.asarray(rows[:, :2]), "group": jnp.asarray(rows[:, 2], int), "num_groups": 4}
    expected = Predictive(model, flat(draws))(jax.random.key(0), **arguments)["mu"]
    np.testing.assert_allclose(function(rows).reshape(6, 20), expected, rtol=1e-13)


@pytest.mark.parametrize("num_rows", [1, 5, 20, 33])
def test_any_number_of_rows_is_taken(function, draws, new_rows, by_hand, num_rows):
    """Also the number of training rows, 20, at which the program runs with one row more."""
    rows = np.resize(new_rows, (num_rows, 3))
    np.testing.assert_allclose(function(rows), by_hand(draws, rows), rtol=1e-13)


def test_every_form_of_draws_gives_the_same_function(model, draws, data, new_rows, by_hand):
    expected = by_hand(draws, new_rows)
    for posterior in (groups_of(draws), arviz_data.group(groups_of(draws), "posterior"), flat(draws)):
        found = kpp.posterior_function(model, posterior, data=data, inputs=INPUTS)(new_rows)
        np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-13)


@pytest.mark.slow
def test_an_mcmc_that_has_run_gives_its_draws(data, new_rows):
    def model(x, y=None):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        mu = numpyro.deterministic("mu", x @ slope)
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    mcmc = numpyro.infer.MCMC(
        numpyro.infer.NUTS(model),
        num_warmup=3,
        num_samples=4,
        num_chains=2,
        progress_bar=False,
        chain_method="sequential",
    )
    arguments = {name: data[name] for name in ("x", "y")}
    mcmc.run(jax.random.key(0), **arguments)
    found = kpp.posterior_function(model, mcmc, data=arguments)(new_rows[:, :2])
    slopes = np.asarray(mcmc.get_samples(group_by_chain=True)["slope"])
    np.testing.assert_allclose(found, np.einsum("csk,nk->csn", slopes, new_rows[:, :2]), rtol=1e-13)


def test_many_draws_are_computed_in_blocks_by_one_program(model, draws, data, new_rows, by_hand):
    calls = []

    def counted(**arguments):
        calls.append(1)
        return model(**arguments)

    many = {name: np.tile(value, (1, 40, *[1] * (value.ndim - 2))) for name, value in draws.items()}
    function = kpp.posterior_function(counted, many, data=data, inputs=INPUTS)
    np.testing.assert_allclose(function(new_rows), by_hand(many, new_rows), rtol=1e-13)
    before = len(calls)
    function(new_rows[:5] + [0.1, 0.0, 0.0])
    assert len(calls) == before


def test_shapley_values_of_a_linear_model_are_exact_for_every_draw(function, draws, new_rows, data):
    """phi_j = slope_j (x_j - mean x_j); of the group, its offset less the mean offset over the background."""
    frame = pd.DataFrame(new_rows, columns=["x0", "x1", "group"])
    for x in (new_rows, frame):
        explanation = kpp.explain(function, x, explainer="kernel-shap")  # the training rows are the background
        assert explanation.values.dims == ("chain", "draw", "instance", "feature")
        assert list(explanation.values["feature"].values) == ["x0", "x1", "group"]
        assert explanation.attrs["background"] == "training data"
        slopes = draws["slope"][:, :, None, :] * (new_rows[:, :2] - data["x"].mean(axis=0))
        np.testing.assert_allclose(explanation.values[..., :2], slopes, atol=1e-10)
        offsets = draws["offset"][:, :, new_rows[:, 2].astype(int)]
        center = draws["offset"][:, :, data["group"]].mean(axis=-1, keepdims=True)
        np.testing.assert_allclose(explanation.values[..., 2], offsets - center, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("explainer", ["shapley-sampling", "bayes-shap", "lime"])
def test_other_explainers_have_draws_too(model, draws, data, new_rows, explainer):
    levels = {"group": ["a", "b", "c", "d"]}
    function = kpp.posterior_function(model, draws, data=data, inputs=INPUTS, levels=levels)
    explanation = kpp.explain(
        function, new_rows[:2], explainer=explainer, background=new_rows, rng_key=jax.random.key(0)
    )
    assert explanation.values.sizes == {"chain": 2, "draw": 3, "instance": 2, "feature": 3}


def test_the_posterior_of_a_contribution_is_that_of_the_coefficient():
    """Conjugate regression with known noise: the mean and standard deviation of phi_j in closed form.

    4000 draws estimate a mean to 1/63 of a standard deviation and a standard deviation to 1.1 %; four times that.
    """
    rng = np.random.default_rng(3)
    x = rng.normal(size=(30, 2))
    y = x @ np.array([1.0, 2.0]) + rng.normal(size=30)

    def model(x, y=None):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(x @ slope, 1.0), obs=y)

    covariance = np.linalg.inv(x.T @ x + np.eye(2))
    mean = covariance @ x.T @ y
    slopes = rng.multivariate_normal(mean, covariance, size=4000)
    function = kpp.posterior_function(model, {"slope": slopes}, "y", data={"x": x, "y": y})
    values = kpp.explain(function, x[:1], explainer="kernel-shap", background=x).values
    centered = x[0] - x.mean(axis=0)
    spread = np.abs(centered) * np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(values.mean(("chain", "draw"))[0], centered * mean, atol=4 * spread.max() / 63)
    np.testing.assert_allclose(values.std(("chain", "draw"))[0], spread, rtol=0.045)


# Models of one column: the value of the site for the slope b at x, what is special about them.


def plate_by_observations(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(y)):
        numpyro.sample("site", dist.Normal(slope * x[:, 0], 1.0), obs=y)


def subsampled(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", 9, subsample_size=4):
        rows, seen = numpyro.subsample(x, event_dim=1), numpyro.subsample(y, event_dim=0)
        numpyro.sample("site", dist.Normal(slope * rows[:, 0], 1.0), obs=seen)


def decentered(x, y=None):
    with handlers.reparam(config={"slope": LocScaleReparam(0.0)}):
        slope = numpyro.sample("slope", dist.Normal(1.0, 2.0))
    numpyro.deterministic("site", slope * x[:, 0])


def with_parameter(x, y=None):
    shift = numpyro.param("shift", 0.0)
    numpyro.deterministic("site", numpyro.sample("slope", dist.Normal(0.0, 1.0)) * x[:, 0] + shift)


def two_outputs(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("outputs", 2, dim=-2), numpyro.plate("data", 9):
        numpyro.sample("site", dist.Normal(slope * x[None, :, 0] * jnp.array([[1.0], [2.0]]), 1.0), obs=y)


def classes(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    logits = jnp.stack([slope * x[:, 0], jnp.zeros(len(x))], axis=1)
    with numpyro.plate("data", 9):
        numpyro.sample("site", dist.Categorical(logits=logits), obs=y)


def logistic(t):
    return 1.0 / (1.0 + np.exp(-t))


@pytest.mark.parametrize(
    ("model", "extra", "expected"),
    [
        (plate_by_observations, {}, lambda b, x: b * x),
        (subsampled, {}, lambda b, x: b * x),
        (decentered, {"slope_decentered": (SLOPES - 1.0) / 2.0}, lambda b, x: b * x),
        (with_parameter, {"shift": np.full((1, 2), 3.0)}, lambda b, x: b * x + 3.0),
        (two_outputs, {}, lambda b, x: np.stack([b * x, 2 * b * x], axis=-1)),
        (classes, {}, lambda b, x: np.stack([logistic(b * x), logistic(-b * x)], axis=-1)),
    ],
)
def test_kinds_of_models(model, extra, expected):
    y = {two_outputs: np.zeros((2, 9)), classes: np.zeros(9, int)}.get(model, np.zeros(9))
    function = kpp.posterior_function(model, {"slope": SLOPES, **extra}, "site", data={"x": ONE_COLUMN, "y": y})
    x = np.array([[0.3], [-1.0], [2.0], [0.1]])
    np.testing.assert_allclose(function(x), expected(SLOPES[..., None], x[:, 0]), rtol=1e-13)


def test_levels_and_columns_of_a_data_frame(model, draws, data, new_rows, by_hand):
    levels = ("west", "north", "east", "south")  # not in the order of the alphabet
    names = np.array(levels, dtype=object)
    frame = pd.DataFrame(data["x"], columns=["age", "bmi"])
    named = {**data, "x": frame, "group": pd.Series(names[data["group"]], name="region")}
    function = kpp.posterior_function(model, draws, data=named, inputs=INPUTS, levels={"region": levels})
    x = pd.DataFrame({"region": names[new_rows[:, 2].astype(int)], "bmi": new_rows[:, 1], "age": new_rows[:, 0]})
    np.testing.assert_allclose(function(x), by_hand(draws, new_rows), rtol=1e-13)
    explanation = kpp.explain(function, x, explainer="kernel-shap")
    assert list(explanation.values["feature"].values) == ["age", "bmi", "region"]
    with pytest.raises(ValueError, match="levels"):
        kpp.posterior_function(model, draws, data=named, inputs=INPUTS)
    with pytest.raises(ValueError, match="unknown levels"):
        function(x.assign(region="center"))


def test_what_is_missing_is_named(model, draws, data, latent_per_row):
    without = {name: value for name, value in draws.items() if name not in ("offset", "center")}
    with pytest.raises(ValueError, match=r"'mu' depends on \['offset'\], which `posterior` lacks"):
        kpp.posterior_function(model, without, data=data, inputs=INPUTS)
    per_row = {"slope": SLOPES, "extra": np.zeros((1, 2, 9))}
    for site in ("rate", "y"):
        with pytest.raises(ValueError, match=r"on \['extra'\], which have one value per training row"):
            kpp.posterior_function(latent_per_row, per_row, site, data={"x": ONE_COLUMN})
    with pytest.raises(ValueError, match=r"'offset', whose draws have shape \(3,\) where the model has \(4,\)"):
        kpp.posterior_function(model, {**draws, "offset": draws["offset"][..., :3]}, data=data, inputs=INPUTS)
    with pytest.raises(ValueError, match="shift"):
        kpp.posterior_function(with_parameter, {"slope": SLOPES}, "site", data={"x": ONE_COLUMN})


def test_what_does_not_matter_may_be_missing(latent_per_row):
    function = kpp.posterior_function(latent_per_row, {"slope": SLOPES}, "typical", data={"x": ONE_COLUMN})
    np.testing.assert_allclose(function([[2.0]]), np.exp(2.0 * SLOPES)[..., None], rtol=1e-13)


def of_other_rows(x):
    numpyro.deterministic("site", numpyro.sample("slope", dist.Normal(0.0, 1.0)) * (x[:, 0] - jnp.mean(x[:, 0])))


def of_no_row(x):
    numpyro.deterministic("site", numpyro.sample("slope", dist.Normal(0.0, 1.0)))


def of_a_second_argument(x, exposure):
    numpyro.deterministic("site", numpyro.sample("slope", dist.Normal(0.0, 1.0)) * x[:, 0] + exposure)


def of_a_place(x, exposure):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", 9) as place:
        numpyro.sample("site", dist.Normal(slope * x[:, 0] + exposure[place], 1.0))


def without_mean(x):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample(
        "site", dist.TransformedDistribution(dist.Normal(slope * x[:, 0], 1.0), dist.transforms.ExpTransform())
    )


def with_heavy_tails(x):
    numpyro.sample("site", dist.Cauchy(numpyro.sample("slope", dist.Normal(0.0, 1.0)) * x[:, 0], 1.0))


def with_other_random_numbers(x):
    noise = jax.random.normal(numpyro.prng_key())
    numpyro.deterministic("site", numpyro.sample("slope", dist.Normal(0.0, 1.0)) * x[:, 0] + noise)


@pytest.mark.parametrize(
    ("model", "extra", "message"),
    [
        (with_heavy_tails, {}, "must be finite.*such as Cauchy"),
        (with_other_random_numbers, {}, "random numbers drawn outside of sample sites"),
        (of_other_rows, {}, "depends on the other rows"),
        (of_no_row, {}, "must have one axis of rows"),
        (of_a_second_argument, {"exposure": np.ones(9)}, "cannot be run at 16 rows"),
        (of_a_place, {"exposure": np.arange(9.0)}, "on its place among them"),
        (without_mean, {}, "has no mean in closed form"),
    ],
)
def test_what_is_no_function_of_a_row_is_refused(model, extra, message):
    with pytest.raises(ValueError, match=message):
        kpp.posterior_function(model, {"slope": SLOPES}, "site", data={"x": ONE_COLUMN, **extra})


def test_a_plate_of_as_many_groups_as_rows_keeps_its_size():
    """Only its latent sites tell the plate of groups from the plate of observations."""

    def model(x, group, y=None):
        with numpyro.plate("groups", 9):
            offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
        mu = numpyro.deterministic("mu", offset[group] + x[:, 0])
        with numpyro.plate("data", 9):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    offsets, data = np.arange(18.0).reshape(2, 9), {"x": ONE_COLUMN, "group": np.arange(9), "y": np.zeros(9)}
    function = kpp.posterior_function(model, {"offset": offsets}, "y", data=data, inputs=("x", "group"))
    np.testing.assert_allclose(function([[0.5, 8.0], [0.0, 2.0]])[0], offsets[:, [8, 2]] + [0.5, 0.0], rtol=1e-13)


def test_a_fixed_argument_keeps_its_value(draws):
    function = kpp.posterior_function(
        of_a_second_argument, {"slope": SLOPES}, "site", data={"x": ONE_COLUMN, "exposure": 2.0}
    )
    np.testing.assert_allclose(function([[1.0]]), SLOPES[..., None] + 2.0, rtol=1e-13)


def test_bad_arguments_are_named(model, draws, data, function, new_rows):
    def build(posterior=draws, site="mu", inputs=INPUTS, **options):
        return kpp.posterior_function(model, posterior, site, data=data, inputs=inputs, **options)

    with pytest.raises(ValueError, match="`site` must be one of.*got 'nu'"):
        build(site="nu")
    with pytest.raises(ValueError, match="`inputs` must name arguments in `data`"):
        build(inputs="z")
    with pytest.raises(ValueError, match="as many rows"):
        kpp.posterior_function(model, draws, data={**data, "group": data["group"][:3]}, inputs=INPUTS)
    with pytest.raises(TypeError, match="`posterior` must be a dict of draws"):
        build(posterior=[1.0])
    with pytest.raises(ValueError, match="as many chains and draws"):
        build(posterior={**draws, "noise": draws["noise"][:, :2]})
    with pytest.raises(ValueError, match="finite numbers"):
        build(posterior={**draws, "noise": np.full((2, 3), np.nan)})
    with pytest.raises(ValueError, match="`feature_names` must have one name for each of the 3"):
        build(feature_names=["a"])
    with pytest.raises(ValueError, match="must hold integers for the argument 'group'"):
        function(new_rows + 0.5)
