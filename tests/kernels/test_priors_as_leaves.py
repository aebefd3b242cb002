"""Kernels that hold priors can be built, combined, printed and sampled, not evaluated."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from kpp.kernels import (
    RBF,
    AbstractKernel,
    Categorical,
    Linear,
    Matern52,
    Periodic,
    Polynomial,
    ProductKernel,
    RationalQuadratic,
)
from kpp.priors import prior_sites, sample

PRIOR = dist.LogNormal(0.0, 1.0)

WITH_PRIORS = {
    "lengthscale": RBF(PRIOR.expand([3])),
    "variance": Matern52(variance=PRIOR),
    "alpha": RationalQuadratic(alpha=PRIOR),
    "period": Periodic(period=PRIOR),
    "offset": Polynomial(2, offset=PRIOR),
    "correlation": Categorical(dist.Beta(1.0, 1.0)),
    "kernels.1.variance": RBF() + PRIOR,
    "kernels.1.kernel.lengthscale": RBF() * RBF(PRIOR).on((0, 1)),
    "kernel.variance": 2.0 * Linear(PRIOR),
    "kernels.0.lengthscale": ProductKernel((RBF(PRIOR), RBF(), RBF())),
}
USES = {
    "call": lambda kernel, x: kernel(x, x),
    "gram": lambda kernel, x: kernel.gram(x),
    "diagonal": lambda kernel, x: kernel.diagonal(x),
    "evaluate": lambda kernel, x: kernel.evaluate(x[0], x[1]),
    "evaluate_by_keyword": lambda kernel, x: kernel.evaluate(x1=x[0], x2=x[1]),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("path", WITH_PRIORS)
def test_evaluation_names_the_prior_and_the_remedy(path, use, x):
    with pytest.raises(TypeError, match=rf"while `{path}` is the prior (LogNormal|Beta)\(.*kpp\.sample"):
        USES[use](WITH_PRIORS[path], x)


@pytest.mark.parametrize("use", USES)
def test_evaluation_of_a_third_party_kernel_names_them_too(use, x, third_party):
    for kernel, path in ((third_party(PRIOR), "width"), (third_party(PRIOR) + 1.0, "kernels.0.width")):
        with pytest.raises(TypeError, match=rf"`{path}` is the prior LogNormal.*kpp\.sample"):
            USES[use](kernel, x)


@pytest.mark.parametrize("member", ["scale", "restrict", "factors", "split_scale"])
@pytest.mark.parametrize(
    "kernel", [RBF(PRIOR, PRIOR), Periodic(PRIOR, variance=PRIOR), PRIOR * Categorical(0.5), RBF(PRIOR).on(0)], ids=repr
)
def test_so_do_the_methods_of_product_kernels(kernel, member, x):
    arguments = {"restrict": (np.ones(3, dtype=bool),), "factors": (x, x), "split_scale": ()}
    with pytest.raises(TypeError, match=r"is the prior LogNormal.*kpp\.sample"):
        getattr(kernel, member)(*arguments[member])


def test_terms_of_a_kernel_with_priors_can_be_counted():
    assert len((RBF(PRIOR) + PRIOR * Periodic()).product_terms()) == 2
    with pytest.raises(TypeError, match="one known variance per feature"):
        Linear(PRIOR.expand([3])).product_terms()


def test_sampling_gives_a_kernel_that_evaluates(x, compiled):
    kernel = 2.0 * RBF(PRIOR.expand([3]), PRIOR) + PRIOR
    names = ["kernel.kernels.0.kernel.lengthscale", "kernel.kernels.0.kernel.variance", "kernel.kernels.1.variance"]
    assert list(prior_sites("kernel", kernel)) == names
    with handlers.seed(rng_seed=0), handlers.trace() as trace:
        drawn = sample("kernel", kernel)
    values = [trace[name]["value"] for name in names]
    expected = 2.0 * RBF(values[0], values[1]) + values[2]
    np.testing.assert_array_equal(compiled.gram(drawn, x), compiled.gram(expected, x))


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (RBF(2, jnp.asarray(0.5)), "RBF(lengthscale=2.0, variance=0.5)"),
        (RBF([1.0, 2.5]), "RBF(lengthscale=[1. , 2.5], variance=1.0)"),
        (Linear() + 1.0, "Sum(kernels=(Linear(variance=1.0), Constant(variance=1.0)))"),
        (
            Polynomial(2).on(("a", 1)),
            "Selected(kernel=Polynomial(degree=2, lengthscale=1.0, variance=1.0, offset=1.0), features=('a', 1))",
        ),
        (RBF(PRIOR.expand([3])), "RBF(lengthscale=LogNormal(loc=0.0, scale=1.0).expand([3]), variance=1.0)"),
        (Linear(dist.HalfNormal(jnp.ones(2)).to_event(1)), "Linear(variance=HalfNormal(scale=[1., 1.]).to_event(1))"),
        (ProductKernel((RBF(),)), "ProductKernel(kernels=(RBF(lengthscale=1.0, variance=1.0),))"),
    ],
)
def test_repr_shows_values_and_priors(kernel, text):
    assert repr(kernel) == text


def test_repr_of_a_traced_kernel_shows_shapes():
    seen = []
    jax.jit(lambda s: seen.append(repr(RBF(s, s[0]))))(jnp.ones(3))
    assert seen == ["RBF(lengthscale=<traced float64[3]>, variance=<traced float64[]>)"]


def test_repr_of_a_distribution_without_arguments():
    transformed = dist.TransformedDistribution(dist.Normal(0.0, 1.0), dist.transforms.ExpTransform())
    assert "TransformedDistribution(batch_shape=(), event_shape=())" in repr(RBF(transformed))


def test_kernels_are_unhashable(every_kernel):
    with pytest.raises(TypeError, match="unhashable"):
        hash(every_kernel)


def test_so_are_kernels_without_arrays():
    class Parameterless(AbstractKernel):
        def evaluate(self, x1, x2):
            return jnp.dot(x1, x2)

    with pytest.raises(TypeError, match="unhashable type: 'Parameterless'"):
        hash(Parameterless())
