"""The estimated gain against the gain itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor

from kpp.causal import Independence
from kpp_models.estimators import ProjectedRegressor

COLLIDERS = {
    "simple": Independence("y", (1,)),
    "parents": Independence("y", (1,), (2,)),
    "several": (Independence("y", (1,)), Independence("y", (1,), (2,))),
}


def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    x = rng.normal(size=(n, 3))
    y = x[:, 2] + rng.normal(size=n)
    x[:, 0] = x[:, 0] / 2 + y + x[:, 1]
    return x, y


@pytest.mark.nightly_variants("several", "parents")
@pytest.mark.slow
@pytest.mark.parametrize("name", COLLIDERS)
def test_the_estimated_gain_is_right_on_average(name):
    rng = np.random.default_rng(3)
    new, y_new = draw(rng, 20_000)
    options = {"collider": COLLIDERS[name], "check": False}
    differences, z = [], []
    for seed in range(60):
        (x, y), (further, _) = draw(rng, 40), draw(rng, 60)
        estimate = ProjectedRegressor(KNeighborsRegressor(3), **options, gain_folds=4, random_state=seed)
        gain = estimate.fit(x, y, further).gain_
        # What the folds are fitted to: three quarters of the rows.
        fitted = ProjectedRegressor(KNeighborsRegressor(3), **options, gain_folds=None).fit(
            x[:30], y[:30], further[:45]
        )
        taken = fitted.projection_(new)[:, 0]
        projected = fitted.predict(new)
        differences.append(gain.gain - np.mean((y_new - projected - taken) ** 2 - (y_new - projected) ** 2))
        z.append(differences[-1] / gain.standard_error)
    # Four standard errors of the mean; the spread of z is near 1, that of the true gain between data sets comes on top.
    assert abs(np.mean(differences)) < 4 * np.std(differences) / np.sqrt(60)
    assert 0.5 < np.std(z) < 1.6


def test_without_more_rows_it_is_the_difference_of_the_held_out_errors():
    rng = np.random.default_rng(4)
    x, y = draw(rng, 50)

    def plain(rows):
        return rows[:, 0] / 2

    model = ProjectedRegressor(plain, prefit=True, collider=COLLIDERS["simple"], check=False, gain_folds=50)
    gain = model.fit(x, y).gain_
    differences = np.empty(50)
    for i in range(50):
        kept = np.delete(np.arange(50), i)
        excess = plain(x[kept]) - y[kept].mean()
        taken = LinearRegression().fit(x[kept][:, [1]], excess).predict(x[[i]][:, [1]])[0]
        differences[i] = (y[i] - plain(x[[i]])[0]) ** 2 - (y[i] - plain(x[[i]])[0] + taken) ** 2
    assert gain.gain == pytest.approx(differences.mean(), rel=1e-10)
    assert gain.standard_error == pytest.approx(differences.std(ddof=1) / np.sqrt(50), rel=1e-10)
    ends = np.array([-1, 1]) * norm.ppf(0.975) * gain.standard_error
    assert gain.interval == pytest.approx(gain.gain + ends, rel=1e-6)


def test_it_can_be_left_out():
    x, y = draw(np.random.default_rng(5), 20)
    model = ProjectedRegressor(LinearRegression(), collider=COLLIDERS["simple"], check=False, gain_folds=None)
    assert model.fit(x, y).gain_ is None
