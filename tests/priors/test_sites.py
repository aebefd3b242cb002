"""`kpp.priors`: where sites come from, what they are called, and that draws go back where they belong."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from kpp.priors import has_priors, leaf_paths, prior_sites, sample, substitute


class Leafy(eqx.Module):
    """A third party's module: nothing is converted, a Python float is a leaf."""

    lengthscale: object
    variance: object = 1.0
    kind: str = eqx.field(static=True, default="leafy")


class Holder(eqx.Module):
    kernels: tuple
    extra: dict


def nested():
    return Holder(
        kernels=(Leafy(dist.LogNormal(0.0, 1.0).expand([3])), Leafy(jnp.ones(2), dist.HalfNormal(2.0))),
        extra={"offset": dist.Normal(0.0, 1.0), "power": 2.0},
    )


def trace(model, seed=0):
    return handlers.trace(handlers.seed(model, jax.random.key(seed))).get_trace()


def test_sites_are_named_by_their_place():
    sites = trace(lambda: sample("kernel", nested()))
    assert list(sites) == ["kernel.kernels.0.lengthscale", "kernel.kernels.1.variance", "kernel.extra.offset"]
    assert {site["type"] for site in sites.values()} == {"sample"}


def test_a_bare_distribution_takes_the_name():
    assert list(trace(lambda: sample("noise", dist.HalfNormal(1.0)))) == ["noise"]


def test_batch_axes_of_a_prior_become_one_variable():
    site = trace(lambda: sample("kernel", nested()))["kernel.kernels.0.lengthscale"]
    assert site["fn"].batch_shape == ()
    assert site["fn"].event_shape == (3,)
    assert prior_sites("kernel", nested())["kernel.kernels.0.lengthscale"].event_shape == (3,)


def test_fixed_leaves_and_static_fields_are_kept():
    drawn = handlers.seed(lambda: sample("kernel", nested()), jax.random.key(0))()
    assert not has_priors(drawn)
    assert has_priors(nested())
    assert drawn.kernels[0].variance == 1.0
    assert isinstance(drawn.kernels[0].variance, float)
    assert drawn.kernels[0].kind == "leafy"
    assert drawn.extra["power"] == 2.0
    np.testing.assert_array_equal(drawn.kernels[1].lengthscale, np.ones(2))


def test_substitute_returns_what_sample_returned():
    def model():
        return sample("kernel", nested())

    drawn = handlers.seed(model, jax.random.key(3))()
    values = {name: site["value"] for name, site in trace(model, 3).items()}
    again = substitute("kernel", nested(), values | {"noise": jnp.ones(())})
    assert eqx.tree_equal(drawn, again)
    replayed = handlers.substitute(handlers.seed(model, jax.random.key(9)), data=values)()
    assert eqx.tree_equal(drawn, replayed)


def test_substitute_keeps_leading_axes():
    values = {name: jnp.ones((2, 5, *prior.shape())) for name, prior in prior_sites("k", nested()).items()}
    assert substitute("k", nested(), values).kernels[0].lengthscale.shape == (2, 5, 3)


def test_substitute_refuses_a_missing_site():
    with pytest.raises(ValueError, match=r"`values` lacks the sites \['k\.variance'\]"):
        substitute("k", Leafy(1.0, dist.HalfNormal(1.0)), {"k.lengthscale": 1.0})


def test_handlers_reach_the_sites():
    conditioned = handlers.condition(lambda: sample("k", nested()), {"k.extra.offset": jnp.asarray(0.5)})
    drawn = handlers.seed(conditioned, jax.random.key(0))()
    assert float(drawn.extra["offset"]) == 0.5


@pytest.mark.slow
def test_a_plate_stands_in_front_of_the_prior():
    def model():
        with numpyro.plate("group", 4):
            return sample("kernel", nested())

    sites = trace(model)
    assert sites["kernel.kernels.0.lengthscale"]["value"].shape == (4, 3)
    assert sites["kernel.extra.offset"]["value"].shape == (4,)
    assert [frame.name for frame in sites["kernel.extra.offset"]["cond_indep_stack"]] == ["group"]


@pytest.fixture(scope="module")
def network():
    return eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))


@pytest.mark.slow
def test_priors_are_given_to_a_network_by_path(network):
    priors = {"layers.0.weight": dist.Normal(0.0, 1.0), "layers.1.bias": dist.Normal(0.0, 2.0).expand([1])}
    sites = trace(lambda: sample("net", network, priors))
    assert {name: site["value"].shape for name, site in sites.items()} == {
        "net.layers.0.weight": (4, 2),
        "net.layers.1.bias": (1,),
    }
    drawn = handlers.seed(lambda: sample("net", network, priors), jax.random.key(0))()
    assert drawn(jnp.ones(2)).shape == (1,)
    np.testing.assert_array_equal(drawn.layers[0].bias, network.layers[0].bias)
    again = substitute("net", network, {name: site["value"] for name, site in sites.items()})
    assert eqx.tree_equal(drawn, again)


@pytest.mark.slow
def test_functions_and_flags_are_no_leaves_for_priors(network):
    assert all(path.startswith("layers.") for path in leaf_paths(network))
    assert leaf_paths({"flag": True, "number": 1, "array": jnp.ones(2)}) == ("array", "number")


def test_python_floats_of_a_third_party_take_priors():
    sites = trace(
        lambda: sample("k", Leafy(2.0), {"variance": dist.HalfNormal(1.0), "lengthscale": dist.Normal().expand([3])})
    )
    assert {name: site["value"].shape for name, site in sites.items()} == {"k.lengthscale": (3,), "k.variance": ()}


def test_a_prior_given_by_path_replaces_the_one_in_the_tree():
    tree = Leafy(dist.LogNormal(0.0, 1.0).expand([3]))
    assert prior_sites("k", tree, {"lengthscale": dist.HalfNormal(1.0)})["k.lengthscale"].event_shape == ()


def test_a_prior_for_no_leaf_is_refused_with_the_list():
    with pytest.raises(ValueError, match=r"`priors` is given for \['lengthscal'\].*\['lengthscale', 'variance'\]"):
        prior_sites("k", Leafy(1.0), {"lengthscal": dist.Normal()})


@pytest.mark.parametrize(
    ("prior", "error", "message"),
    [
        (1.0, TypeError, "must hold NumPyro distributions, got float for 'lengthscale'"),
        (dist.Normal().expand([3]), ValueError, r"prior of shape \(3,\) for 'lengthscale', of shape \(2,\)"),
    ],
)
def test_a_prior_that_does_not_fit_is_refused(prior, error, message):
    with pytest.raises(error, match=message):
        prior_sites("k", Leafy(jnp.ones(2)), {"lengthscale": prior})


def test_two_leaves_of_one_name_are_refused():
    tree = {"a.b": dist.Normal(), "a": {"b": dist.Normal()}}
    with pytest.raises(ValueError, match=r"same site name: \['k\.a\.b'\]"):
        prior_sites("k", tree)


@pytest.mark.slow
def test_no_param_site_is_left(network):
    kinds = {site["type"] for site in trace(lambda: sample("net", network, {"layers.0.bias": dist.Normal()})).values()}
    assert kinds == {"sample"}
