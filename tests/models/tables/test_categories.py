"""Columns of text reach a Categorical kernel, or the fit is refused with a kernel to write."""

from __future__ import annotations

import re

import jax
import numpy as np
import pandas as pd
import pytest

import kpp
import kpp_models
from kpp import kernels
from kpp.data import tables
from kpp.kernels import RBF, Categorical

FRAME = pd.DataFrame(
    {
        "age": [0.3, 1.1, -0.4, 0.8, 0.1, -1.2],
        "city": ["Rome", "Bern", "Rome", "Oslo", "Bern", "Oslo"],
        "smoker": [True, False, True, True, False, False],
    }
)
KEY = jax.random.key(0)
Y = np.array([0.0, 1.0, 0.0, 1.0, 1.0, 0.0])
MODELS = {
    "GPRegression": lambda kernel: kpp_models.GPRegression(kernel, 0.1),
    "GPClassification": lambda kernel: kpp_models.GPClassification(kernel),
    "KernelRidge": lambda kernel: kpp_models.KernelRidge(kernel, 0.1),
    "KernelLogistic": lambda kernel: kpp_models.KernelLogistic(kernel, 0.1),
    "ColliderRidge": lambda kernel: kpp_models.ColliderRidge(
        kernel, None, 0.1, None, children=("age", "city", "smoker"), spouses=(), form="general"
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_text_that_reaches_another_kernel_is_refused_with_a_kernel_to_write(name):
    create = MODELS[name]
    with pytest.raises(ValueError, match=r"`kernel` reads the category 'city' of `x` as numbers") as caught:
        create(RBF()).prepare(FRAME, Y)
    written = re.search(r"as in (.*), or use `(.*)` with `(.*)`", str(caught.value))
    assert written is not None
    names = {"RBF": RBF, "Categorical": Categorical}
    create(eval(written[1], names)).prepare(FRAME, Y)
    known = {"kpp": kpp, "x": FRAME}
    exec(written[3], known)
    kernel = eval(written[2], known)
    assert isinstance(kernel, kernels.AbstractKernel)
    create(kernels.default_kernel(tables.read_points(FRAME)[1], priors=False)).prepare(FRAME, Y)


def test_booleans_may_be_numbers():
    kpp_models.KernelRidge(RBF(), 0.1).prepare(FRAME[["age", "smoker"]], Y)


def test_numbers_that_are_named_as_categories_are_refused_too():
    frame = FRAME.assign(city=pd.Categorical([3, 1, 3, 2, 1, 2]))
    with pytest.raises(ValueError, match="category 'city'"):
        kpp_models.KernelRidge(RBF(), 0.1).prepare(frame, Y)


def test_a_treatment_of_text_is_refused_by_its_kernel():
    data = kpp_models.InterventionData.create(FRAME[["city"]], FRAME[["age"]])
    link = kpp_models.CausalLink(RBF(), RBF(), 0.1)
    with pytest.raises(ValueError, match="`treatment_kernel` reads the category 'city' of `treatment`"):
        kpp_models.IMP((link,), 0.1).prepare((data,), Y)


MATCHES = pd.DataFrame({"winner": ["a", "b", "c"], "loser": ["b", "c", "a"], "user": ["u", "v", "u"]})


@pytest.mark.parametrize(
    ("model", "contexts", "message"),
    [
        (kpp_models.PreferenceGP(kernels.Preferential(RBF())), [], "`kernel` reads the category 'city' of `items`"),
        (
            kpp_models.PreferenceGP(kernels.Contextual(kernels.Preferential(Categorical()), RBF())),
            ["user"],
            "`context_kernel` reads the category 'user' of `contexts`",
        ),
    ],
)
def test_items_and_contexts_of_text_are_refused_by_their_kernels(model, contexts, message):
    items = FRAME[["city"]].drop_duplicates().assign(ID=["a", "b", "c"])
    matches = kpp.preferences.Matches.from_tables(items, MATCHES, contexts=contexts)
    with pytest.raises(ValueError, match=message):
        model.prepare(matches)


def test_many_matches_need_a_kernel_for_their_items_too():
    items = FRAME[["city"]].drop_duplicates().assign(ID=["a", "b", "c"])
    matches = kpp.preferences.Matches.from_tables(items, MATCHES)
    with pytest.raises(ValueError, match="`kernel` reads the category 'city' of `items`"):
        kpp_models.PreferenceRidge(kernels.Preferential(RBF()), 0.1).prepare(matches)


def predicted_by_hand(correlation, frame):
    """The posterior mean and variance of a Gaussian process, by NumPy; levels are compared as text."""

    def kernel(first, second):
        distance = first["age"].to_numpy()[:, None] - second["age"].to_numpy()
        same = first["city"].to_numpy()[:, None] == second["city"].to_numpy()
        return 1.5 * np.exp(-0.5 * (distance / 0.8) ** 2) * np.where(same, 1.0, correlation)

    cross, inverse = kernel(frame, FRAME), np.linalg.inv(kernel(FRAME, FRAME) + 0.2 * np.eye(6))
    return 0.3 + cross @ inverse @ (Y - 0.3), kernel(frame, frame) - cross @ inverse @ cross.T


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.4])
def test_an_unseen_level_is_predicted_as_a_category_without_observations(correlation):
    kernel = RBF(0.8, 1.5).on("age") * Categorical(correlation).on("city")
    model = kpp_models.GPRegression(kernel, 0.2, 0.3)
    fit = model.fit(KEY, FRAME[["age", "city"]], Y, inference=kpp.MAP(progress=False), num_prior_samples=0)
    new = pd.DataFrame({"age": [0.3, 0.5, 0.3, -0.4], "city": ["Paris", "Rome", "Cairo", "Paris"]})
    with pytest.raises(ValueError, match=r"unknown levels \['Cairo', 'Paris'\] in column 'city'.*unseen=\"prior\""):
        fit.predict(new)
    found = fit.predict(new, unseen="prior", covariance=True)
    mean, covariance = predicted_by_hand(correlation, new)
    np.testing.assert_allclose(found["mean"].values[0, 0], mean, rtol=1e-10)
    np.testing.assert_allclose(found["latent_covariance"].values[0, 0], covariance, rtol=1e-9, atol=1e-12)
    if correlation == 0.0:
        np.testing.assert_allclose(found["mean"].values[0, 0, [0, 2, 3]], 0.3, rtol=1e-12)
    assert fit.sample_predictive(KEY, new, 2, unseen="prior").shape == (2, 4)


def test_unseen_levels_are_an_option_of_data_frames_with_two_values():
    fit = kpp_models.KernelRidge(Categorical(), 0.1).fit(KEY, FRAME[["city"]], Y, num_prior_samples=0)
    with pytest.raises(ValueError, match=r"`unseen` must be one of \('error', 'prior'\), got 'ignore'"):
        fit.predict(FRAME[["city"]], unseen="ignore")
    with pytest.raises(ValueError, match="must hold codes from 0 to 2"):
        fit.predict(np.array([[3.0]]), unseen="prior")
