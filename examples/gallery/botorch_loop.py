"""A BoTorch optimization, explained: why the surrogate recommends its best experiment.

    python examples/gallery/botorch_loop.py [--quick] [--batches N] [--seed SEED]
        [--output picture.png]

A reactor turns A into B, and B into waste. The yield of B depends on temperature, time
and concentration, and does not depend on the speed of the stirrer. BoTorch runs batches
of experiments with noise; after each batch, `kpp.as_gp_posterior` takes its surrogate,
transforms included, and RKHS-SHAP computes the exact Shapley values of the recommended
experiment, with their exact posterior standard deviations. The value of an input is its
share in the difference between the predicted yield of the experiment and the mean over
the range of all inputs. The table also holds the values of the true yield, in brackets.

It needs BoTorch: `pip install "kpp[botorch]"`.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from scipy.stats import qmc

import kpp

#: Each input with its unit and its range.
RANGES = {
    "temperature [°C]": (20.0, 120.0),
    "time [h]": (1.0, 10.0),
    "concentration [mol/l]": (0.05, 1.0),
    "stirrer [1/min]": (100.0, 900.0),
}
LOWER, UPPER = np.array(list(RANGES.values())).T
NOISE = 1.0  # standard deviation of a measured yield, in percent
BATCH_SIZE = 4


class Stage(NamedTuple):
    """The recommended experiment after a batch, its explanation, and true values."""

    num_experiments: int
    best: pd.DataFrame
    explanation: kpp.Explanation
    truth: np.ndarray

    @property
    def standard_deviations(self) -> np.ndarray:
        """The posterior standard deviations of the values, (d,)."""
        return np.sqrt(np.diagonal(self.explanation.covariance.to_numpy()[0]))


def main(arguments: list[str] | None = None) -> list[Stage]:
    """Run the loop, print a table and draw a picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="two batches, for a trial run"
    )
    parser.add_argument(
        "--batches", type=int, default=6, help="batches of four experiments"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of designs, noise and optimizer"
    )
    parser.add_argument("--output", type=Path, help="where the picture goes")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    stages = run(2 if options.quick else options.batches, options.seed)
    print_table(stages)
    if options.output is not None:
        draw(stages).savefig(options.output, dpi=150)
    return stages


def run(num_batches: int, seed: int) -> list[Stage]:
    """Run the optimization, and explain its recommendation after every batch."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    background, x = uniform(128, seed + 1), uniform(8, seed)
    y = measure(x, rng)
    stages = []
    for batch in range(num_batches + 1):
        model = fit(x, y)
        stages.append(explain(model, x, background))
        if batch < num_batches:
            chosen = propose(model, x)
            y = np.concatenate([y, measure(chosen, rng)])
            x = np.concatenate([x, chosen])
    return stages


def true_yield(x: Any) -> np.ndarray:
    """Return the yield of B in percent at points (n, 4), by Arrhenius rates."""
    temperature, time, concentration = np.asarray(x, dtype=float).T[:3]
    inverse = 1000.0 / (temperature + 273.15) - 1000.0 / 333.15
    to_product = 0.5 * np.sqrt(concentration) * np.exp(-6.0 * inverse)
    to_waste = 0.05 * np.exp(-11.0 * inverse)
    decay = np.exp(-to_waste * time) - np.exp(-to_product * time)
    return 100.0 * to_product * decay / (to_product - to_waste)


def uniform(num_points: int, seed: int) -> np.ndarray:
    """Return points that fill the ranges evenly, (n, 4)."""
    return qmc.scale(qmc.Sobol(len(RANGES), seed=seed).random(num_points), LOWER, UPPER)


def measure(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return measured yields."""
    return true_yield(x) + NOISE * rng.normal(size=len(x))


def fit(x: np.ndarray, y: np.ndarray) -> SingleTaskGP:
    """Fit BoTorch's surrogate, in the unit cube and with standardized yields."""
    bounds = torch.as_tensor(np.stack([LOWER, UPPER]))
    transform = Normalize(len(RANGES), bounds=bounds)
    model = SingleTaskGP(
        torch.as_tensor(x), torch.as_tensor(y)[:, None], input_transform=transform
    )
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model.eval()


def propose(model: SingleTaskGP, x: np.ndarray) -> np.ndarray:
    """Return the next batch of experiments, (4, 4), by expected improvement."""
    with torch.no_grad():
        best = model.posterior(torch.as_tensor(x)).mean.max()
    bounds = torch.as_tensor(np.stack([LOWER, UPPER]))
    acquisition = qLogExpectedImprovement(model, best_f=best)
    chosen, _ = optimize_acqf(
        acquisition, bounds, q=BATCH_SIZE, num_restarts=5, raw_samples=128
    )
    return chosen.numpy()


def explain(model: SingleTaskGP, x: np.ndarray, background: np.ndarray) -> Stage:
    """Explain the experiment with the best predicted yield."""
    posterior = kpp.as_gp_posterior(model)
    best = pd.DataFrame(x[[int(np.argmax(posterior.mean(x)))]], columns=list(RANGES))
    explanation = kpp.explain(
        posterior, best, background=background, covariance="point", progress=False
    )
    truth = kpp.explain(
        true_yield, best, explainer="kernel-shap", background=background, progress=False
    )
    return Stage(len(x), best, explanation, truth.values.to_numpy()[0])


def print_table(stages: list[Stage]) -> None:
    """Print, for each stage, the recommended experiment and its values."""
    for stage in stages:
        explanation, yields = stage.explanation, true_yield(stage.best)[0]
        prediction = explanation.predictions.item()
        base = explanation.base_values.item()
        print(
            f"\n{stage.num_experiments} experiments: predicted yield {prediction:.1f} "
            f"% ({yields:.1f}), mean over the ranges {base:.1f} %"
        )
        rows = zip(
            RANGES,
            stage.best.iloc[0],
            explanation.values.to_numpy()[0],
            stage.standard_deviations,
            stage.truth,
            strict=True,
        )
        for name, value, mean, deviation, truth in rows:
            print(
                f"  {name:<22} = {value:>7.2f}  "
                f"{mean:>7.2f} ± {deviation:>5.2f}  ({truth:>6.2f})"
            )


def draw(stages: list[Stage]) -> plt.Figure:
    """Draw the values of each input, with two standard deviations, and the truth."""
    counts = [stage.num_experiments for stage in stages]
    values = np.array([stage.explanation.values.to_numpy()[0] for stage in stages])
    deviations = np.array([stage.standard_deviations for stage in stages])
    truths = np.array([stage.truth for stage in stages])
    figure, axes = plt.subplots(
        1, len(RANGES), figsize=(11, 3.2), sharey=True, layout="constrained"
    )
    for ax, name, value, deviation, truth in zip(
        axes, RANGES, values.T, deviations.T, truths.T, strict=True
    ):
        ax.errorbar(
            counts,
            value,
            2 * deviation,
            fmt="o-",
            capsize=3,
            label="surrogate, ± 2 standard deviations",
        )
        ax.plot(counts, truth, "kx", label="true yield")
        ax.axhline(0.0, color="0.7", linewidth=0.8, zorder=0)
        ax.set(title=name, xlabel="experiments", xticks=counts)
    axes[0].set_ylabel("Shapley value [% yield]")
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=2,
        frameon=False,
    )
    return figure


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the optimizers of BoTorch, which try again
        main()
