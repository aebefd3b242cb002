"""Are posteriors of structural models calibrated? Ranks of true parameters, from tables that the models draw.

Run it as `python examples/benchmarks/structural_calibration.py [--tables N]`. Parameters, and tables given them, are
drawn from `kpp_models.StructuralModel`; the parameters are ranked among draws from their posterior given the table,
by NUTS. Ranks of correct posteriors are uniform. The last model is a check of the test: its tables have noise of a
variance that is four times as large as the model of the posterior assumes.
"""

from __future__ import annotations

import argparse
import time

import jax
from numpyro import distributions as dist

from kpp.calibration import simulation_based_calibration
from kpp.causal import CausalDAG
from kpp.gp import GaussianLikelihood
from kpp.kernels import RBF
from kpp_models import GPMechanism, LinearMechanism, StructuralModel

jax.config.update("jax_enable_x64", True)

TRIANGLE = CausalDAG([("z", "x"), ("z", "y"), ("x", "y")])
CONFOUNDED = CausalDAG([("x", "y")], bidirected=[("x", "y")])
PRIOR = dist.LogNormal(0.0, 0.5)
GAUSSIAN_PROCESS = GPMechanism(RBF(PRIOR, PRIOR), GaussianLikelihood(noise_variance=dist.LogNormal(-1.0, 0.5)))
LINEAR = StructuralModel(TRIANGLE)
NOISY = LinearMechanism(likelihood=GaussianLikelihood(noise_variance=dist.HalfNormal(4.0)))

# The model, the number of rows, and the model that draws the tables if it is another one.
MODELS = {
    "linear, z -> x -> y and z -> y": (LINEAR, 15, None),
    "Gaussian process, x -> y": (StructuralModel(CausalDAG([("x", "y")]), {"y": GAUSSIAN_PROCESS}), 12, None),
    "linear, x -> y and x <-> y": (StructuralModel(CONFOUNDED), 15, None),
    "linear, tables with other noise": (LINEAR, 15, StructuralModel(TRIANGLE, dict.fromkeys("zxy", NOISY))),
}


def main(num_tables: int) -> None:
    print("| model | rows | ranked numbers | p-value | seconds |\n|---|---|---|---|---|")
    for name, (model, num_rows, simulator) in MODELS.items():
        start = time.perf_counter()
        result = simulation_based_calibration(
            jax.random.key(0),
            model,
            {"num_rows": num_rows},
            observed=sorted(model.graph.nodes),
            num_datasets=num_tables,
            datasets_per_block=75,
            simulator=simulator,
            progress=False,
        )
        seconds = time.perf_counter() - start
        print(f"| {name} | {num_rows} | {len(result.tests())} | {result.p_value():.2g} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tables", type=int, default=300, help="tables for each model")
    main(parser.parse_args().tables)
