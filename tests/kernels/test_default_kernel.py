"""The kernel for a table: which columns a kernel reads as numbers, and the default kernel, against NumPy."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from kpp import registry
from kpp.data.tables import Schema, read_points
from kpp.features import Nystrom
from kpp.kernels import (
    RBF,
    AbstractKernel,
    BagMean,
    Categorical,
    Constant,
    Contextual,
    DeepKernel,
    GeneralizedPreferential,
    Linear,
    Matern32,
    Preferential,
    ProductKernel,
    default_kernel,
    resolve_features,
)
from kpp.priors import prior_sites

FRAME = pd.DataFrame(
    {
        "age": [0.3, 1.1, -0.4, 0.3],
        "city": ["Rome", "Bern", "Rome", "Oslo"],
        "smoker": [True, False, True, True],
        "dose": [1, 2, 4, 8],
    }
)


def test_the_default_kernel_has_lengthscales_on_numbers_and_correlations_on_categories():
    points, schema = read_points(FRAME)
    assert schema.booleans == ("smoker",)
    kernel = resolve_features(default_kernel(schema, priors=False), schema.feature_names)
    numbers = FRAME[["age", "dose"]].to_numpy(float)
    expected = np.exp(-0.5 * np.sum((numbers[:, None] - numbers) ** 2, axis=2))
    for column in ("city", "smoker"):
        values = FRAME[column].to_numpy()
        expected *= np.where(values[:, None] == values, 1.0, 0.5)
    np.testing.assert_allclose(kernel.gram(jnp.asarray(points)), expected, rtol=1e-12)
    assert len(kernel.product_terms()) == 1


def test_the_default_kernel_has_one_prior_per_parameter():
    sites = prior_sites("kernel", default_kernel(read_points(FRAME)[1]))
    assert {name: prior.shape() for name, prior in sites.items()} == {
        "kernel.kernels.0.kernel.lengthscale": (2,),
        "kernel.kernels.0.kernel.variance": (),
        "kernel.kernels.1.kernel.correlation": (2,),
    }


@pytest.mark.parametrize(("columns", "kind"), [(["age", "dose"], RBF), (["city", "smoker"], Categorical)])
def test_the_default_kernel_of_one_kind_of_columns_has_one_part(columns, kind):
    kernel = default_kernel(read_points(FRAME[columns])[1])
    assert isinstance(kernel.kernel, kind)
    assert "kernel.kernel.variance" in prior_sites("kernel", kernel)


def test_the_default_kernel_needs_a_schema():
    with pytest.raises(TypeError, match=r"`schema` must be a kpp.data.tables.Schema, got DataFrame; .*read_points"):
        default_kernel(FRAME)


class OfOthers(AbstractKernel):
    """A kernel of a plugin that holds kernels in a dict."""

    parts: dict[str, AbstractKernel]

    def evaluate(self, x1, x2):
        return self.parts["a"].evaluate(x1, x2) * self.parts["b"].evaluate(x1, x2)


class Alone(AbstractKernel):
    """A kernel of a plugin that holds none."""

    def evaluate(self, x1, x2):
        return jnp.sum(x1 * x2)


# The columns are a, b, c.
READ_AS_NUMBERS = {
    "RBF": (RBF(), "abc"),
    "a constant": (Constant(2.0), ""),
    "categories": (Categorical(), ""),
    "a sum": (RBF().on("a") + Categorical().on(("b", "c")) + 1.0, "a"),
    "a product by positions": (2.0 * Matern32().on((0, 2)) * Categorical().on(1), "ac"),
    "nested selections": ((RBF().on("c") * Categorical().on("a")).on(("b", "a", "c")), "c"),
    "one kernel per column": (ProductKernel((RBF(), Categorical(), Linear())), "ac"),
    "restricted": (ProductKernel((RBF(), Categorical(), Categorical())).restrict(np.array([True, True, False])), "a"),
    "a term": ((2.0 * RBF().on("a") * Categorical().on("b")).product_terms()[0], "a"),
    "a network": (DeepKernel(Categorical(), jnp.sin), "abc"),
    "landmarks": (Nystrom(Categorical() * RBF().on("b"), jnp.zeros((1, 3))), "b"),
    "pairs": (Preferential(Categorical().on("a") + RBF().on("b")), "b"),
    "contexts": (Contextual(GeneralizedPreferential(Categorical()), RBF()), ""),
    "bags": (BagMean(RBF().on("c")), "c"),
    "a plugin's kernel of kernels": (OfOthers({"a": Categorical(), "b": RBF().on("b")}), "b"),
    "a plugin's kernel": (Alone(), "abc"),
}


@pytest.mark.parametrize("case", READ_AS_NUMBERS)
def test_a_kernel_knows_which_columns_it_reads_as_numbers(case):
    kernel, expected = READ_AS_NUMBERS[case]
    assert kernel.features_as_numbers(("a", "b", "c")) == set(expected)


@eqx.filter_jit
def gram(kernel, x):
    return kernel.gram(x)


@pytest.mark.parametrize("name", registry.kernels())
def test_codes_can_be_exchanged_in_columns_that_are_not_read_as_numbers(name):
    for kernel, x in registry.get("kernels", name).examples(jax.random.key(0)):
        if not eqx.is_array(x) or x.ndim != 2:
            continue
        columns = [f"c{j}" for j in range(x.shape[1])]
        free = [j for j, column in enumerate(columns) if column not in kernel.features_as_numbers(columns)]
        codes = np.random.default_rng(0).integers(0, 3, x.shape).astype(float)
        exchanged = codes.copy()
        exchanged[:, free] = np.array([7.0, 0.0, 2.0])[codes[:, free].astype(int)]
        if free:
            np.testing.assert_allclose(gram(kernel, exchanged), gram(kernel, codes), rtol=1e-12)


def test_a_schema_without_names_of_the_kernel_is_refused():
    with pytest.raises(ValueError, match="'d', which is not among"):
        RBF().on("d").features_as_numbers(Schema(("a", "b")).feature_names)
