"""Run chains in one of several processes of `jax.distributed`, and save the draws; the test starts the processes."""

import sys

import jax
import numpy as np
import numpyro
from numpyro import distributions as dist

import kpp

process, num_processes, port, output = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
if num_processes > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes, process)


def model(y=None):
    location = numpyro.sample("location", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(location, 1.0).to_event(1), obs=y)


method = "processes" if num_processes > 1 else "parallel"
nuts = kpp.NUTS(num_warmup=20, num_samples=10, num_chains=4, chain_method=method, progress=False)
data = {"y": np.ones(2)}
first = nuts.run(jax.random.key(0), model, data)
assert first.attrs["chain_method"] == method
more = nuts.resume(jax.random.key(1), 5, model, data, first.state)
np.savez(output, first=first.samples["location"], more=more.samples["location"])
if num_processes > 1:
    try:
        kpp.NUTS(num_chains=3, chain_method="processes").run(jax.random.key(0), model, data)
    except ValueError as error:
        assert "`num_chains` must be a multiple of the 2 processes" in str(error)
