"""Time the value and gradient of the marginal likelihood of a Gaussian process: kpp and NumPyro compared.

Run it as `python examples/benchmarks/gp_gradient.py`. Both use the same kernel (RBF with one lengthscale per feature)
on scikit-learn's diabetes data, 442 x 10. Each number is the minimum of several runs, in which the two alternate.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from sklearn.datasets import load_diabetes

from kpp.kernels import RBF
from kpp_models import GaussianProcessMarginal

ROUNDS = 15


def ours(lengthscale, noise_variance, x, y):
    return GaussianProcessMarginal(0.0, RBF(lengthscale).gram(x), noise_variance).log_prob(y)


def numpyros(lengthscale, noise_variance, x, y):
    covariance = RBF(lengthscale).gram(x) + noise_variance * jnp.eye(len(y))
    return dist.MultivariateNormal(0.0, covariance_matrix=covariance).log_prob(y)


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    x, y = load_diabetes(return_X_y=True)
    x, y = x / x.std(0), (y - y.mean()) / y.std()
    arguments = (jnp.full(10, 3.0), jnp.asarray(0.5), jnp.asarray(x), jnp.asarray(y))
    programs = {
        (name, what): jax.jit(transform(f))
        for name, f in (("kpp", ours), ("NumPyro's MultivariateNormal", numpyros))
        for what, transform in (("value", lambda f: f), ("value and gradient", lambda f: jax.value_and_grad(f, (0, 1))))
    }
    values = {key: jax.block_until_ready(program(*arguments)) for key, program in programs.items()}
    times = {key: np.inf for key in programs}
    for _ in range(ROUNDS):
        for key, program in programs.items():
            times[key] = min(times[key], seconds(lambda program=program: program(*arguments)))
    print(f"{'':30} {'value':>10} {'value and gradient':>20}")
    for name in ("kpp", "NumPyro's MultivariateNormal"):
        first, second = (1e3 * times[name, what] for what in ("value", "value and gradient"))
        print(f"{name:30} {first:7.2f} ms {second:17.2f} ms")
    key, peer = ("kpp", "value and gradient"), ("NumPyro's MultivariateNormal", "value and gradient")
    pairs = zip(jax.tree.leaves(values[key]), jax.tree.leaves(values[peer]), strict=True)
    gap = max(float(jnp.max(jnp.abs(a - b))) for a, b in pairs)
    print(f"gradient {times[peer] / times[key]:.1f} times as fast; largest difference of a number: {gap:.1e}")


if __name__ == "__main__":
    main()
