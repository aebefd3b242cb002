"""Columns of text reach a Categorical kernel, or the fit is refused with a kernel to write."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import kpp
import kpp_models
from kpp import kernels, tables
from kpp.kernels import RBF, Categorical

FRAME = pd.DataFrame(
    {
        "age": [0.3, 1.1, -0.4, 0.8, 0.1, -1.2],
        "city": ["Rome", "Bern", "Rome", "Oslo", "Bern", "Oslo"],
        "smoker": [True, False, True, True, False, False],
    }
)
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
        kpp_models.PreferenceRidge(kernels.Preferential(RBF()), 0.1).fit(matches)
