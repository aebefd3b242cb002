"""How often `InterventionData.normality` rejects normal outcomes, and outcomes with two peaks.

    python examples/reproduce/normal_outcomes.py [--seeds 100] [--small]

Samples of 100 rows. "normal": y = sin(x) + N(0, .3^2) with x uniform on [-3, 3]; "peaks 2 apart" and "peaks 4 apart":
half of the outcomes are raised and half lowered, so that the peaks are 2 and 4 standard deviations of the noise apart;
the others are D1 of the simple graph (back-door) and of `two_peaks` in `causal_models.py`. The share of samples in
which the p-value is below 5 %.
"""

from __future__ import annotations

import click
import jax
import numpy as np
import pandas as pd
from causal_models import simple, two_peaks

from kpp_models import InterventionData

ROWS, NOISE = 100, 0.3


def apart(distance: float, rng: np.random.Generator) -> InterventionData:
    """Return a sample whose two peaks have this distance, in standard deviations of the noise."""
    x, signs = rng.uniform(-3.0, 3.0, (ROWS, 1)), rng.choice([-0.5, 0.5], (ROWS, 1))
    return InterventionData.create(x, np.sin(x) + NOISE * (distance * signs + rng.normal(size=(ROWS, 1))))


KINDS = {
    "normal": lambda rng: apart(0.0, rng),
    "peaks 2 apart": lambda rng: apart(2.0, rng),
    "peaks 4 apart": lambda rng: apart(4.0, rng),
    "simple graph, unimodal": lambda rng: simple("backdoor", multimodal=False).first(rng, ROWS),
    "simple graph, multimodal": lambda rng: simple("backdoor", multimodal=True).first(rng, ROWS),
    "two peaks": lambda rng: two_peaks().first(rng, ROWS),
}


@click.command(help=__doc__)
@click.option("--seeds", default=100, show_default=True, help="Samples of each kind.")
@click.option("--small", is_flag=True, help="One sample of two kinds.")
def main(seeds: int, small: bool) -> dict[str, pd.DataFrame]:
    """Test all samples."""
    jax.config.update("jax_enable_x64", True)
    kinds, seeds = (list(KINDS)[:3:2], 1) if small else (list(KINDS), seeds)
    rows = [
        {
            "outcome": name,
            "seed": seed,
            "rejected": float(KINDS[name](np.random.default_rng(seed)).normality()[0] < 0.05),
        }
        for name in kinds
        for seed in range(seeds)
    ]
    found = pd.DataFrame(rows)
    click.echo(found.groupby("outcome", sort=False)["rejected"].agg(["mean", "sem"]).round(3).to_string())
    return {"rejections": found}


if __name__ == "__main__":
    main()
