"""Registered objects as JSON: what goes in comes out, and what cannot is refused with the place named."""

from __future__ import annotations

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from kpp import registry
from kpp.embeddings import MeanEmbedding
from kpp.features import RandomFourier
from kpp.kernels import RBF, AbstractKernel, Matern, Matern32, Periodic, Polynomial, ProductKernel, RationalQuadratic
from kpp.priors import prior_sites
from kpp.storage.serialization import from_spec, to_spec


def through_json(obj, kind="kernels"):
    return from_spec(json.loads(json.dumps(to_spec(obj), allow_nan=False)), kind)


def test_spec_is_what_a_study_file_says():
    kernel = RBF(lengthscale=dist.LogNormal(0.0, 1.0).expand([10]), variance=1.0)
    assert to_spec(kernel) == {
        "name": "RBF",
        "lengthscale": {"prior": "LogNormal", "loc": 0.0, "scale": 1.0, "expand": [10]},
        "variance": 1.0,
    }


KERNELS = {
    "per-feature": RBF(lengthscale=jnp.array([0.1, 1 / 3])),
    "sum": RBF(0.5) + 2.5 * Matern32(jnp.pi) + 1.0,
    "product of sums": (RBF(1.0) + Periodic(2.0)) * Polynomial(degree=3),
    "chosen features": RBF(jnp.ones(2)).on((2, 0)) * Matern32(1.0).on((1,)),
    "features by name": RBF(jnp.ones(2)).on(("age", "sex")),
    "one kernel a feature": ProductKernel((RBF(1.0), Periodic(1.0), Matern32(2.0))),
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_kernels_come_back_equal(kernel):
    copy = through_json(kernel)
    assert eqx.tree_equal(copy, kernel)
    assert repr(copy) == repr(kernel)


PRIORS = {
    "HalfNormal": lambda: dist.HalfNormal(2.0),
    "expanded": lambda: dist.LogNormal(0.0, 1.0).expand([3]),
    "expanded to an event": lambda: dist.LogNormal(0.0, 1.0).expand([3]).to_event(1),
    "per feature": lambda: dist.Gamma(2.0, jnp.array([1.0, 2.0, 3.0])),
    "InverseGamma": lambda: dist.InverseGamma(2.0, 3.0),
    "Uniform of integers": lambda: dist.Uniform(0, 2),
    "LogUniform": lambda: dist.LogUniform(0.1, 10.0),
    "truncated on one side": lambda: dist.TruncatedNormal(0.5, 1.0, low=0.0),
    "truncated on both sides": lambda: dist.TruncatedNormal(0.5, 1.0, low=0.0, high=1.0),
    "Dirichlet": lambda: dist.Dirichlet(jnp.array([1.0, 2.0])),
    "nested wrappers": lambda: dist.LogNormal().expand([2]).to_event(1).expand([3]),
}


def correlated():
    return dist.MultivariateNormal(jnp.zeros(2), jnp.array([[2.0, 0.5], [0.5, 1.0]]))


@pytest.mark.slow_variants(
    "InverseGamma",
    "correlated",
    "nested wrappers",
    "per feature",
    "truncated on both sides",
    "truncated on one side",
)
@pytest.mark.parametrize("make", [*PRIORS.values(), correlated], ids=[*PRIORS, "correlated"])
def test_priors_come_back_with_the_same_density(make):
    prior = make()
    # Frequencies may be negative.
    kernel = RandomFourier(frequencies=prior) if make is correlated else RBF(lengthscale=prior)
    copy = getattr(through_json(kernel), "frequencies" if make is correlated else "lengthscale")
    assert (type(copy), copy.batch_shape, copy.event_shape) == (type(prior), prior.batch_shape, prior.event_shape)

    @jax.jit
    def densities():
        draws = prior.sample(jax.random.key(0), (2,))
        return copy.log_prob(draws), prior.log_prob(draws)

    with jax.numpy_rank_promotion("allow"):  # NumPyro's own
        np.testing.assert_array_equal(*densities())


def test_priors_keep_their_places():
    kernel = 2.0 * RBF(dist.HalfNormal(1.0)) + Matern32(1.0, dist.HalfNormal(3.0))
    assert list(prior_sites("kernel", through_json(kernel))) == list(prior_sites("kernel", kernel))


def test_numpyro_functions_may_be_written_by_hand():
    spec = {"name": "RBF", "lengthscale": {"prior": "TruncatedNormal", "loc": 1.0, "low": 0.0, "expand": [2]}}
    prior = from_spec(spec, "kernels").lengthscale
    assert prior.batch_shape == (2,)
    assert prior.support.lower_bound == 0.0


def test_parameters_that_are_given_by_keyword_are_read_by_their_names():
    """Specifications as they are in files that were saved when these parameters had a position."""
    numbers = {"lengthscale": 0.5, "variance": 0.25}
    for cls, last in ((Periodic, "period"), (Matern, "nu"), (RationalQuadratic, "alpha")):
        found = from_spec({"name": cls.__name__, **numbers, last: 2.0}, "kernels")
        assert eqx.tree_equal(found, cls(0.5, variance=0.25, **{last: 2.0})) and float(getattr(found, last)) == 2.0


def test_defaults_may_be_left_out():
    assert eqx.tree_equal(from_spec({"name": "RBF", "lengthscale": 2}, "kernels"), RBF(2.0))


def test_objects_of_other_kinds_nest():
    embedding = MeanEmbedding(RBF(2.0), jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    assert eqx.tree_equal(through_json(embedding, "embeddings"), embedding)


REFUSED_TO_WRITE = {
    "unregistered class": (lambda: object(), TypeError, "needs an instance of a registered class, got object"),
    "class": (lambda: RBF, TypeError, "needs an instance of a registered class"),
    "NaN": (
        lambda: eqx.tree_at(lambda e: e.points, MeanEmbedding(RBF(1.0), jnp.ones((1, 1))), jnp.array([[jnp.nan]])),
        TypeError,
        "`points`: .* NaN",
    ),
    "key": (lambda: MeanEmbedding(RBF(1.0), jax.random.split(jax.random.key(0))), TypeError, "`points`: .*dtype key"),
    "distribution built of transforms": (
        lambda: RBF(1.0) + RBF(dist.TransformedDistribution(dist.Normal(), dist.transforms.ExpTransform())),
        TypeError,
        r"`kernels.1.lengthscale`: a spec cannot hold the prior TransformedDistribution",
    ),
    "distribution of a stranger": (
        lambda: RBF(type("Strange", (dist.HalfNormal,), {})(1.0)),
        TypeError,
        "`lengthscale`: a spec cannot hold the prior Strange",
    ),
}


@pytest.mark.parametrize(("make", "error", "message"), REFUSED_TO_WRITE.values(), ids=REFUSED_TO_WRITE)
def test_what_cannot_be_written_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        to_spec(make())


def test_unregistered_kernel_inside_another_is_refused():
    class Local(AbstractKernel):
        def evaluate(self, x1, x2):
            return 1.0

    with pytest.raises(TypeError, match=r"`kernels.1`: .*Local is not registered"):
        to_spec(RBF(1.0) + Local())


REFUSED_TO_READ = {
    "no mapping": (["RBF"], TypeError, 'a string under "name"'),
    "no name": ({"lengthscale": 1.0}, TypeError, 'a string under "name"'),
    "unknown name": ({"name": "RBG"}, registry.PluginError, "did you mean 'RBF'"),
    "unknown nested name": (
        {"name": "Scaled", "variance": 1.0, "kernel": {"name": "RBG"}},
        ValueError,
        "`kernel`: .*did you mean 'RBF'",
    ),
    "unknown field": (
        {"name": "RBF", "lengthscales": 1.0},
        ValueError,
        "no field 'lengthscales'; its fields are lengths",
    ),
    "missing field": ({"name": "Scaled", "variance": 1.0}, ValueError, "Scaled needs the field 'kernel'"),
    "value refused": ({"name": "RBF", "lengthscale": -1.0}, ValueError, "RBF: .*`lengthscale`"),
    "unknown prior": (
        {"name": "RBF", "lengthscale": {"prior": "LogNormale"}},
        ValueError,
        "`lengthscale`: numpyro.distributions has no distribution 'LogNormale'",
    ),
    "no distribution": ({"name": "RBF", "lengthscale": {"prior": "biject_to"}}, ValueError, "`lengthscale`: "),
    "unknown argument": (
        {"name": "RBF", "lengthscale": {"prior": "LogNormal", "mean": 0.0}},
        ValueError,
        "`lengthscale`: the prior LogNormal cannot be built: .*'mean'",
    ),
    "bad expand": (
        {"name": "RBF", "lengthscale": {"prior": "LogNormal", "expand": ["d"]}},
        ValueError,
        "`lengthscale`: the prior LogNormal cannot be built",
    ),
}


@pytest.mark.parametrize(("spec", "error", "message"), REFUSED_TO_READ.values(), ids=REFUSED_TO_READ)
def test_what_cannot_be_read_is_refused(spec, error, message):
    with pytest.raises(error, match=message):
        from_spec(spec, "kernels")
