"""Compare estimators of the log determinant of latent="iterative": kpp's random signs, and XTrace and XNysTrace.

Run it as `python examples/benchmarks/trace_estimators.py [--rows 1500] [--rank 50 500] [--seeds 20]`. It needs matfree,
whose estimators are those of Epperly, Tropp and Webber (2024). The preconditioned matrix A of kpp is built in full, so
that products with log(A) are exact and only the estimators differ. A row shows the standard deviation of an estimate of
the trace of log(A) over the seeds, in nats per row of the data, for the same number of products.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from iterative_gp import LENGTHSCALE, NOISE, NUM_FEATURES, TEST_ROWS, data
from jaxtyping import Array, Float
from matfree import stochtrace

from kpp.gp import IterativeSettings
from kpp.gp.toolkit import IterativeSystem
from kpp.kernels import RBF

PRODUCTS = (8, 32, 128)
Matrix = Float[Array, "n n"]


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--rank", type=int, nargs="+", default=[50, 500])
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"{'rank':>5} {'products':>8}" + "".join(f"{name:>14}" for name in ESTIMATORS))
    for rank in options.rank:
        matrix = log_matrix(options.rows, rank)
        exact = jnp.trace(matrix)
        for num in PRODUCTS:
            errors = {
                name: [float(estimate(matrix, num, jax.random.key(seed)) - exact) for seed in range(options.seeds)]
                for name, estimate in ESTIMATORS.items()
            }
            deviations = [np.sqrt(np.mean(np.square(error))) / options.rows for error in errors.values()]
            print(f"{rank:>5} {num:>8}" + "".join(f"{deviation:>14.1e}" for deviation in deviations), flush=True)


def log_matrix(rows: int, rank: int) -> Matrix:
    """Return log(A), for the kernel and the noise of `iterative_gp.py`."""
    points = jnp.asarray(data(rows + TEST_ROWS)[0])[:rows]
    kernel, noise = RBF(jnp.full(NUM_FEATURES, LENGTHSCALE)), NOISE**2
    system = IterativeSystem.create(kernel, points, noise, IterativeSettings(rank=rank))
    whitener = system.whiten(jnp.eye(rows))
    matrix = whitener @ (kernel.gram(points) + noise * jnp.eye(rows)) @ whitener.T
    values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * jnp.log(jnp.maximum(values, 1.0))) @ vectors.T  # A is at least the identity


def random_signs(matrix: Matrix, num: int, key: Array) -> Float[Array, ""]:
    """Estimate the trace as kpp does (Hutchinson)."""
    probes = jax.random.rademacher(key, (len(matrix), num), dtype=float)
    return jnp.sum(probes * (matrix @ probes)) / num


def exchangeable(integrand: Callable, per_sample: int) -> Callable[[Matrix, int, Array], Float[Array, ""]]:
    """Return an estimator of matfree that needs some products for each sample."""

    def estimate(matrix: Matrix, num: int, key: Array) -> Float[Array, ""]:
        samples = jax.random.normal(key, (num // per_sample, len(matrix)))
        return jnp.mean(integrand(lambda vector: matrix @ vector, samples))

    return estimate


ESTIMATORS = {
    "random signs": random_signs,
    "XTrace": exchangeable(stochtrace.leave_one_out_xtrace(), 2),
    "XNysTrace": exchangeable(stochtrace.leave_one_out_xnystrace(), 1),
}


if __name__ == "__main__":
    main()
