"""Simulate the climate data of `aerosol.py` with the FaIR 2.0 emulator: temperature, CO2 forcing, aerosol forcing.

    python examples/reproduce/fair_simulation.py [--output FILE] [--sizes 5000 1000 5000] [--seed N] [--compare FILE]

(Bouabid, Fawkes and Sejdinovic, Returning the favour: when regression benefits from probabilistic causal knowledge,
2023, section 6.2; the emulator is that of Leach et al., FaIRv2.0.0, 2021.) The emissions of CO2 from fossil fuels,
methane, sulphur and black carbon are those of the scenario RCP4.5 in the package `fair` (Apache-2.0), which only this
script needs: `pip install fair==1.6.4`. It also runs in an environment with `fair`, NumPy and click alone.

The settings are those of the published code. Its parameters of the four gases and of the three thermal boxes are tuned
to the climate model NorESM2-LM, and it doubles the emissions of sulphur, of which it finds too little. White noise with
standard deviation .1 is added to the forcings of CO2, sulphur and black carbon in each year from 1765 on. Each
simulation keeps three numbers of the year 2020: the temperature (K), the forcing of CO2, and the sum of those of
sulphur and black carbon (W/m2).

`--output` is a NumPy file with the arrays `train`, `val` and `test`, which `aerosol.py --data` reads. `--compare`
compares such a file with these simulations: means, standard deviations and correlations, and single numbers. With the
published seeds, 5, 6 and 7, all 33,000 numbers differ by at most 4e-9 from those of our file `fair_aerosol.npz`, from
which `aerosol.py` has its 500 simulations. With the seeds 0, 1 and 2, no moment differs by more than 1.9 standard
errors.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

NOISE = np.array([0.1, 0.0, 0.1, 0.1])  # of CO2, methane, sulphur and black carbon, in this order everywhere
FIRST, YEAR = 1765, 2020
YEARS = 736  # of the scenario, for all of which the published code draws noise
NAMES = ("temperature", "CO2 forcing", "aerosol forcing")
PARTS = ("train", "val", "test")

# Four pools per gas: the share of the emissions that each takes, and its lifetime in years.
SHARES = np.array([[0.2173, 0.224, 0.2824, 0.2763], *[[1.0, 0.0, 0.0, 0.0]] * 3])
LIFETIMES = np.array([[1e9, 394.4, 36.54, 4.304], [8.8, 1.0, 1.0, 1.0], *[[1.0] * 4] * 2])
# Lifetimes grow by these coefficients of 1, of what was taken up, of the temperature, and of what is in the air.
GROWTH = np.array([[40.7, 0.00947, 1.56, 0.00489], [8.8, 0.0, -0.33, 0.00032], *[[1.0, 0.0, 0.0, 0.0]] * 2])
BEFORE = np.array([278.0, 720.0, 204.0, 1e-15])  # concentrations before industry
PER_EMISSION = np.array([0.468887594, 0.351665695, 1.0, 1.0])
# Forcings are these coefficients of the logarithm, of the value and of the square root of a concentration.
FORCING = np.array(
    [[5.645658380557106, 0.0, 0.001166281189619991], [0.0, 0.0, 0.0385], [0.0, -0.00126, 0.0], [0.0, 0.00302, 0.0]]
)
RESPONSE_YEARS = np.array([230.95025154502827, 1.8415484815571417, 0.026163209615848827])
RESPONSE = np.array([0.21493148593486722, 0.40863836120319147, 1.3856950159430294e-12])


def emissions() -> np.ndarray:
    """Return the emissions of each year until `YEAR`, (years, species).

    Raises:
        click.UsageError: If `fair` is not installed.
    """
    try:
        from fair.RCPs import rcp45
    except ImportError:
        raise click.UsageError("the emissions come from another package: pip install fair==1.6.4") from None
    of = rcp45.Emissions
    return np.stack([of.co2_fossil, of.ch4, 2 * of.sox, of.bc], axis=1)[of.year <= YEAR]


def draw_noise(count: int, seed: int) -> np.ndarray:
    """Return the noise of the forcings, (count, years, species), in the order of the published code."""
    drawn = np.random.RandomState(seed).standard_normal((count, YEARS, len(NOISE)))
    return NOISE * drawn[:, : YEAR + 1 - FIRST]


def simulate(emitted: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Run the emulator many times side by side, one year at a time, and return the last year.

    Args:
        emitted: The emissions of each year, (years, species).
        noise: The noise of the forcings of each simulation, (count, years, species).

    Returns:
        The temperature, the forcing of CO2 and that of the aerosols, (count, 3).
    """
    decay = np.exp(-100 / LIFETIMES)
    slope = np.sum(SHARES * LIFETIMES * (1 - (1 + 100 / LIFETIMES) * decay), axis=1)
    level = np.exp(-np.sum(SHARES * LIFETIMES * (1 - decay), axis=1) / slope)
    count, _, species = noise.shape
    pools, boxes = np.zeros((count, species, 4)), np.zeros((count, 3))
    total, before = np.zeros(species), np.zeros((count, 1))
    for number, now in enumerate(emitted):
        airborne = pools.sum(axis=-1)
        warm = np.broadcast_to(before, airborne.shape)
        state = np.stack([np.ones_like(warm), total - airborne, warm, airborne], axis=-1)
        scale = level * np.exp(np.abs(np.sum(GROWTH * state, axis=-1)) / slope)
        lifetimes = scale[..., None] * LIFETIMES
        kept = np.exp(-1 / lifetimes)
        pools = now[:, None] * SHARES * lifetimes * (1 - kept) + pools * kept
        forcing = force(BEFORE + PER_EMISSION * (pools.sum(axis=-1) + airborne) / 2)
        forcing += noise[:, number]
        kept = np.exp(-1 / RESPONSE_YEARS)
        new = RESPONSE * forcing.sum(axis=1, keepdims=True) * (1 - kept) + boxes * kept
        temperature = (boxes + new).sum(axis=1) / 2
        before, boxes, total = new.sum(axis=1, keepdims=True), new, total + now
    return np.stack([temperature, forcing[:, 0], forcing[:, 2:].sum(axis=1)], axis=1)


def force(concentrations: np.ndarray) -> np.ndarray:
    """Return the forcings of concentrations, (count, species)."""
    ratio, positive = concentrations / BEFORE, np.maximum(concentrations, 0.0)
    logarithm = np.log(np.where(ratio > 0, ratio, 1.0))
    changes = np.stack([logarithm, concentrations - BEFORE, np.sqrt(positive) - np.sqrt(BEFORE)], axis=-1)
    return np.sum(FORCING * changes, axis=-1)


def moments(rows: np.ndarray) -> dict[str, float]:
    """Return the means, standard deviations and correlations of rows (n, 3), by name."""
    deviations, correlations = rows.std(axis=0, ddof=1), np.corrcoef(rows.T)
    found = {f"mean of the {name}": value for name, value in zip(NAMES, rows.mean(axis=0), strict=True)}
    found |= {f"standard deviation of the {name}": value for name, value in zip(NAMES, deviations, strict=True)}
    pairs = ((0, 1), (0, 2), (1, 2))
    return found | {f"correlation of {NAMES[i]} and {NAMES[j]}": correlations[i, j] for i, j in pairs}


def error_of(rows: np.ndarray) -> list[float]:
    """Return the standard errors of the moments, in their order; those of normal rows except for the means."""
    n, found = len(rows), moments(rows)
    deviations, correlations = rows.std(axis=0, ddof=1), list(found.values())[6:]
    return [*deviations / n**0.5, *deviations / (2 * n) ** 0.5, *((1 - r**2) / n**0.5 for r in correlations)]


def compare(ours: np.ndarray, others: np.ndarray) -> list[tuple[str, float, float, float]]:
    """Return the moments of two samples by name, and their differences in standard errors."""
    errors = np.hypot(error_of(ours), error_of(others))
    both = zip(moments(ours).items(), moments(others).values(), errors, strict=True)
    return [(name, one, other, (one - other) / error) for (name, one), other, error in both]


@click.command(help=__doc__)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="The NumPy file to write.")
@click.option("--sizes", nargs=3, type=int, default=(5000, 1000, 5000), show_default=True, help="Of the three arrays.")
@click.option("--seed", default=5, show_default=True, help="Of the first array; the others have the next two.")
@click.option("--compare", "other", type=click.Path(path_type=Path, exists=True), help="Another file of this kind.")
def main(output: Path | None, sizes: tuple[int, int, int], seed: int, other: Path | None) -> None:
    """Simulate, write and compare."""
    emitted = emissions()
    found = {
        part: simulate(emitted, draw_noise(size, seed + j))
        for j, (part, size) in enumerate(zip(PARTS, sizes, strict=True))
    }
    rows = np.concatenate(list(found.values()))
    if output is not None:
        np.savez(output, **found)
    if other is None:
        for name, value in moments(rows).items():
            click.echo(f"{name:<55}{value:>10.4f}")
        return
    with np.load(other) as read:
        others = np.concatenate([read[part] for part in PARTS])
    click.echo(f"{'':<55}{'ours':>10}{'other':>10}   difference in standard errors")
    for name, one, their, gap in compare(rows, others):
        click.echo(f"{name:<55}{one:>10.4f}{their:>10.4f}{gap:>10.2f}")
    if len(rows) == len(others):
        click.echo(f"largest difference of a number {np.abs(rows - others).max():.1e}")


if __name__ == "__main__":
    main()
