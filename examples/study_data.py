"""Write the files of the example studies of matches, bags, graphs and effects: simulated, with known answers.

python examples/study_data.py
kpp run examples/matches.toml --output build/matches
kpp run examples/bags.toml --output build/bags
kpp run examples/graph.toml --output build/graph
kpp run examples/effects.toml --output build/effects
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd


def players(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Return 15 players, and 120 matches that the faster player tends to win; the height says nothing."""
    items = pd.DataFrame(
        {
            "player": [f"player {number}" for number in range(15)],
            "speed": rng.normal(20.0, 3.0, 15).round(2),
            "height": rng.normal(180.0, 8.0, 15).round(1),
        }
    )
    first = rng.integers(0, 15, 120)
    second = (first + rng.integers(1, 15, 120)) % 15
    speed = items["speed"].to_numpy()
    wins = rng.random(120) < 1 / (1 + np.exp(speed[second] - speed[first]))
    names = items["player"].to_numpy()
    matches = pd.DataFrame(
        {"winner": names[np.where(wins, first, second)], "loser": names[np.where(wins, second, first)]}
    )
    return {"players": items, "matches": matches}


def districts(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Return 20 districts with their mean rain, and 5 places in each; rain grows with the height of a place."""
    district = np.repeat(np.arange(20), 5)
    mean_height = np.linspace(0.0, 2000.0, 20)
    height = mean_height[district] + rng.normal(0.0, 150.0, 100)
    slope = rng.uniform(0.0, 30.0, 100)
    rain = 600.0 + 0.4 * height
    places = pd.DataFrame({"district": district, "height": height.round(1), "slope": slope.round(2)})
    means = pd.Series(rain).groupby(district).mean() + rng.normal(0.0, 10.0, 20)
    table = pd.DataFrame({"district": np.arange(20), "mean height": mean_height.round(1), "rain": means.round(1)})
    return {"places": places, "districts": table}


def patients(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Return 40 patients, and 60 without the response: dose -> response -> marker <- weight."""
    dose, weight = rng.uniform(0.0, 10.0, 100), rng.normal(75.0, 12.0, 100)
    response = 2.0 * dose + rng.normal(0.0, 2.0, 100)
    marker = 0.5 * response + 0.2 * weight + rng.normal(0.0, 1.0, 100)
    table = pd.DataFrame({"dose": dose, "weight": weight, "marker": marker, "response": response}).round(2)
    return {"patients": table[:40], "patients_without_response": table[40:].drop(columns="response")}


def trials(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Return a trial in which older patients get more of a drug, and a cohort; exercise has a smaller effect."""
    age = rng.uniform(40.0, 80.0, 60)
    drug = 0.1 * (age - 60.0) + rng.uniform(0.0, 10.0, 60)
    exercise = rng.uniform(0.0, 5.0, 60)
    pressure = 120.0 + 0.8 * age - 3.0 * drug - 1.0 * exercise + rng.normal(0.0, 2.0, 60)
    measured = rng.uniform(130.0, 185.0, 40)
    risk = 10.0 + 0.3 * (measured - 150.0) + rng.normal(0.0, 1.0, 40)
    table = pd.DataFrame({"drug": drug, "exercise": exercise, "age": age, "blood pressure": pressure}).round(2)
    return {"trial": table, "cohort": pd.DataFrame({"blood pressure": measured, "risk": risk}).round(2)}


def main() -> None:
    """Write the files next to this script."""
    rng = np.random.default_rng(0)
    for tables in (players(rng), districts(rng), patients(rng), trials(rng)):
        for name, table in tables.items():
            path = Path(__file__).with_name(f"{name}.csv")
            table.to_csv(path, index=False)
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
