"""A curve or surface with its uncertainty: how the prediction depends on one or two features."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from kpp.foundation.arguments import guard_exports
from kpp.foundation.validation import count, one_of
from kpp.foundation.validation import probability as check_probability
from kpp.functionals import FunctionalLaw
from kpp.plots import curve as plot_curve
from kpp.plots import field as plot_field
from kpp.typing import RngKey

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The joint samples from which probabilities of shapes are estimated.
_NUM_SAMPLES = 4000


class ProbabilityIncreasing(NamedTuple):
    """The probability that a curve rises.

    Attributes:
        everywhere: The probability that it rises from each value of the grid to the next one.
        steps: The probability for each step, by the values of the grid at its ends.
    """

    everywhere: float
    steps: pd.Series


@dataclasses.dataclass(frozen=True)
class Curve:
    """How the prediction depends on one feature, or a surface of two features, from `kpp.curve`.

    Args:
        dataset: ``draws`` (chain, draw, grid); ``mean`` (law, grid) and, unless they are 0, ``covariance`` (law, grid,
            grid_other) given each draw of the hyperparameters; ``data`` (row), the values of the feature in all rows.
            Individual curves have the dimension ``instance`` before ``grid``, and are drawn apart from each other. The
            coordinate ``grid`` holds the values of the feature in the units of the table, or the levels of a category;
            for two features all pairs of values, an index of the levels ``first`` and ``second``. The attributes are
            ``kind``, ``feature``, ``scale``, ``rows``, ``centered`` and
            ``uncertainty``: what intervals hold.
    """

    dataset: xr.Dataset

    def __repr__(self) -> str:
        """Return kind, feature and grid, and what the intervals hold."""
        attrs, sizes = self.attrs, dict(self.dataset["draws"].sizes)
        return f"Curve({attrs['kind']} of {attrs['feature']!r}: {sizes}, uncertainty: {attrs['uncertainty']})"

    @property
    def attrs(self) -> dict[str, Any]:
        """Kind, feature, scale, rows, and what the intervals hold."""
        return self.dataset.attrs

    @property
    def grid(self) -> np.ndarray:
        """The values of the feature, (p,), or the pairs of values of two features."""
        return self.dataset["grid"].to_numpy()

    @property
    def is_individual(self) -> bool:
        """Whether there is a curve for each of several rows."""
        return "instance" in self.dataset.dims

    @property
    def is_surface(self) -> bool:
        """Whether there are two features."""
        return self.dataset["data"].ndim == 2

    @property
    def law(self) -> FunctionalLaw:
        """The joint law of the values of the curve, given each draw of the hyperparameters.

        Raises:
            ValueError: If there are individual curves; `instance` selects one.
        """
        if self.is_individual:
            raise ValueError("`kind` 'individual' has a curve for each row; select one with `instance(number)` first")
        mean = jnp.asarray(self.dataset["mean"].to_numpy())
        size = len(self.grid)
        known = "covariance" in self.dataset
        covariance = self.dataset["covariance"].to_numpy() if known else np.zeros((len(mean), size, size))
        return FunctionalLaw(mean, jnp.asarray(covariance), tuple(map(str, self.grid)))

    def instance(self, number: int) -> Curve:
        """Return the individual curve of one row, counted from 0."""
        if not self.is_individual:
            raise ValueError(f"`instance` needs curves of kind 'individual', got one of kind {self.attrs['kind']!r}")
        count(number, "number", 0, most=self.dataset.sizes["instance"] - 1, most_is="the number of the last row")
        return Curve(self.dataset.isel(instance=number))

    def centered(self) -> Curve:
        """Return the curve minus its mean over the grid, with the law of that difference."""
        matrix = np.eye(len(self.grid)) - 1 / len(self.grid)
        found = {name: self.dataset[name] for name in ("draws", "mean", "covariance") if name in self.dataset}
        moved = {name: values.to_numpy() @ matrix for name, values in found.items()}
        if "covariance" in moved:
            moved["covariance"] = matrix @ moved["covariance"]
        values = {name: (found[name].dims, array) for name, array in moved.items()}
        return Curve(self.dataset.assign(values).assign_attrs(centered=True))

    def summary(self, probability: float = 0.9, *, rng_key: RngKey | None = None) -> pd.DataFrame:
        """Return the mean, the standard deviation, the pointwise interval and the joint band for each grid value.

        Intervals are exact for a Gaussian process. The band holds the whole curve with the probability; it is estimated
        from 4000 joint samples.

        Args:
            probability: The probability of the intervals and of the band.
            rng_key: A JAX random key for the band; the key 0 by default.

        Returns:
            One row per value or pair of values of the grid; for individual curves also per instance.
        """
        check_probability(probability, "probability")
        if self.is_individual:
            numbers = range(self.dataset.sizes["instance"])
            each = {i: self.instance(i).summary(probability, rng_key=rng_key) for i in numbers}
            return pd.concat(each, names=["instance"])
        law = self.law
        mean, variance = np.asarray(law.mean), np.asarray(law.variance)
        lower, upper = law.interval(probability)
        band = law.band(_key(rng_key), probability)
        if self.attrs["scale"] == "probability" and self.attrs["kind"] != "accumulated" and not self.attrs["centered"]:
            band = band.clip(0.0, 1.0)
        columns = {
            "mean": mean.mean(axis=0),
            "sd": np.sqrt(variance.mean(axis=0) + mean.var(axis=0)),
            "lower": lower,
            "upper": upper,
            "band_lower": band[0],
            "band_upper": band[1],
        }
        return pd.DataFrame(columns, index=self._index)

    def probability_increasing(self, *, rng_key: RngKey | None = None) -> ProbabilityIncreasing:
        """Return the probability that the curve rises: everywhere on the grid, from 4000 joint samples, and per step.

        Args:
            rng_key: A JAX random key for the samples; the key 0 by default.

        Raises:
            ValueError: If the feature is a category, whose levels have no order.
        """
        grid = self._numbers("probability_increasing")
        steps = _transformed(self.law, np.diff(np.eye(len(grid)), axis=0)).probability_greater()
        everywhere = (np.diff(self._samples(rng_key), axis=1) > 0).all(axis=1).mean()
        index = pd.MultiIndex.from_arrays([grid[:-1], grid[1:]], names=["from", "to"])
        return ProbabilityIncreasing(float(everywhere), pd.Series(steps, index, name="probability"))

    def rise(self, low: float = 0.1, high: float = 0.9, *, probability: float = 0.9) -> pd.Series:
        """Return the change of the curve from one quantile of the feature to another one.

        Between values of the grid the curve is a straight line.

        Args:
            low: The probability of the first quantile of the feature in the rows.
            high: The probability of the second quantile, larger than `low`.
            probability: The probability of the interval.

        Returns:
            The values of the feature ("from", "to"), the mean and standard deviation of the change, its interval, and
            the probability that it is greater than 0.

        Raises:
            ValueError: If the feature is a category, or a quantile lies outside of the grid.
        """
        grid = self._numbers("rise")
        if not 0 <= low < high <= 1:
            raise ValueError(f"`low` and `high` must satisfy 0 <= low < high <= 1, got {low} and {high}")
        ends = np.quantile(self.dataset["data"].to_numpy(), [low, high])
        if ends[0] < grid[0] or ends[1] > grid[-1]:
            raise ValueError(
                f"`low` and `high` must be quantiles inside of the grid, from {grid[0]:g} to {grid[-1]:g}, got the "
                f"quantiles {ends[0]:g} and {ends[1]:g}"
            )
        at_ends = np.array([np.interp(ends, grid, unit) for unit in np.eye(len(grid))])
        return self._change(ends, np.diff(at_ends.T, axis=0), probability)

    def contrast(self, value: Any, reference: Any, *, probability: float = 0.9) -> pd.Series:
        """Return the change of the curve from one value of the grid to another one.

        Args:
            value: A value of the grid: a number, a level of a category, or a pair of values of two features.
            reference: Another one, at which the change begins.
            probability: The probability of the interval.

        Returns:
            As `rise`.

        Raises:
            ValueError: If a value is not in the grid, or there are individual curves.
        """
        known = self.grid.tolist()
        for name, given in (("value", value), ("reference", reference)):
            if given not in known:
                raise ValueError(f"`{name}` must be a value of the grid, {known}, got {given!r}")
        places = [known.index(reference), known.index(value)]
        return self._change((reference, value), np.diff(np.eye(len(known))[places], axis=0), probability)

    def turning_point(
        self, extremum: Literal["maximum", "minimum"] = "maximum", *, rng_key: RngKey | None = None
    ) -> pd.Series:
        """Return the probability of each value of the grid that the curve has its maximum or minimum there.

        Args:
            extremum: "maximum" or "minimum".
            rng_key: A JAX random key for the 4000 joint samples; the key 0 by default.
        """
        sign = 1.0 if one_of(extremum, "extremum", ("maximum", "minimum")) == "maximum" else -1.0
        places = np.argmax(sign * self._samples(rng_key), axis=1)
        shares = np.bincount(places, minlength=len(self.grid)) / len(places)
        return pd.Series(shares, self._index, name="probability")

    def plot(self, *, probability: float = 0.9, rng_key: RngKey | None = None, ax: Axes | None = None) -> Axes:
        """Plot the curve with its interval, band and a rug of the data, or the individual curves and their mean.

        The mean of a surface is plotted in colors, with the rows as points.

        Args:
            probability: The probability of the interval and of the band.
            rng_key: A JAX random key for the band; the key 0 by default.
            ax: Where to draw; a new figure by default.
        """
        label = {"latent": "prediction", "prediction": "prediction", "probability": "probability"}[self.attrs["scale"]]
        attrs = {"kind": self.attrs["kind"], "feature": self.attrs["feature"], "label": label}
        rug = None if self._is_category else self.dataset["data"]
        mean = self.dataset["mean"].mean("law").assign_attrs(attrs)
        if self.is_surface:
            first, second = self.attrs["feature"]
            table = mean.unstack("grid").rename(first=first, second=second).transpose(second, first)
            ax = plot_field(table, label=f"{label} ({attrs['kind']})", ax=ax)
            if rug is not None:
                ax.plot(*rug.to_numpy().T, ".", color="white", markersize=2, alpha=0.6)
            return ax
        if self.is_individual:
            return plot_curve(mean.mean("instance"), individual=mean, rug=rug, ax=ax)
        table = self.summary(probability, rng_key=rng_key)
        if not table["sd"].any():
            return plot_curve(mean, rug=rug, ax=ax)
        bounds = [
            xr.DataArray(
                table[[f"{prefix}lower", f"{prefix}upper"]].to_numpy(),
                dims=("grid", "bound"),
                coords={"grid": self.grid},
                attrs={"kind": "eti", "probability": probability},
            )
            for prefix in ("", "band_")
        ]
        return plot_curve(mean, intervals=bounds[0], band=bounds[1], rug=rug, ax=ax)

    def _change(self, ends: Any, matrix: Float[np.ndarray, "1 p"], probability: float) -> pd.Series:
        law = _transformed(self.law, matrix)
        mean, variance = np.asarray(law.mean)[:, 0], np.asarray(law.variance)[:, 0]
        lower, upper = law.interval(probability)[:, 0]
        sd = np.sqrt(variance.mean() + mean.var())
        numbers = (*ends, mean.mean(), sd, lower, upper, law.probability_greater()[0])
        names = ("from", "to", "mean", "sd", "lower", "upper", "probability_positive")
        return pd.Series(numbers, names, name=self.attrs["feature"])

    @property
    def _index(self) -> pd.Index:
        index, feature = self.dataset.indexes["grid"], self.attrs["feature"]
        return index.set_names(list(feature) if self.is_surface else feature)

    @property
    def _is_category(self) -> bool:
        parts = (self.dataset[name] for name in (("first", "second") if self.is_surface else ("grid",)))
        return any(part.dtype.kind not in "fiu" for part in parts)

    def _numbers(self, method: str) -> Float[np.ndarray, " p"]:
        if self.is_surface:
            raise ValueError(f"`{method}` needs a curve of one feature, got a surface of {self.attrs['feature']}")
        if self._is_category:
            raise ValueError(
                f"`{method}` needs a feature with an order; the levels of {self.attrs['feature']!r} have none"
            )
        return self.grid

    def _samples(self, rng_key: RngKey | None) -> Float[np.ndarray, "s p"]:
        law = self.law
        num = 1 if "covariance" not in self.dataset else -(-_NUM_SAMPLES // len(law.mean))
        return law.sample(_key(rng_key), num).reshape(-1, len(self.grid))


def _key(rng_key: RngKey | None) -> RngKey:
    return jax.random.key(0) if rng_key is None else rng_key


def _transformed(law: FunctionalLaw, matrix: Float[np.ndarray, "r q"]) -> FunctionalLaw:
    """Return the law of the products of a matrix with the numbers."""
    return FunctionalLaw(law.mean @ matrix.T, matrix @ law.covariance @ matrix.T)


guard_exports(globals())
