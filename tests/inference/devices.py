"""Run chains on two devices and one after the other; the test starts it in a process with two devices."""

import jax
import numpy as np
import numpyro
from numpyro import distributions as dist

import kpp


def model(y=None):
    location = numpyro.sample("location", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(location, 1.0).to_event(1), obs=y)


assert jax.local_device_count() == 2
runs = [
    kpp.NUTS(num_warmup=20, num_samples=10, num_chains=2, chain_method=method, progress=False).run(
        jax.random.key(0), model, {"y": np.ones(2)}
    )
    for method in (None, "sequential")
]
assert runs[0].attrs["chain_method"] == "parallel"
np.testing.assert_allclose(runs[0].samples["location"], runs[1].samples["location"], rtol=1e-6)
