"""A function of an RKHS with the names of its features: `kpp.explain` reads tables by them, and a file holds both."""

from __future__ import annotations

import json
import os

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import xarray as xr

from kpp.data.tables import Schema
from kpp.foundation.arguments import guard_exports
from kpp.functions import RKHSFunction
from kpp.runtime.batching import call_in_chunks
from kpp.storage import netcdf
from kpp.storage.serialization import from_spec, to_spec

_MARK, _FORMAT = "kpp_function", 1


class NamedFunction(eqx.Module):
    """A function of an RKHS with the names of its features.

    It is explained like a `kpp.Fit`: `kpp.explain` selects the columns of a data frame by their names.

    Args:
        rkhs_function: The function, with one output and without draws, on points (n, d).
        schema: The names of the d features.

    Raises:
        ValueError: If the function has draws or several outputs, or the number of names is not d.

    Example:
        >>> function = kpp.RKHSFunction(kpp.kernels.RBF(1.0), x[:2], np.ones(2))
        >>> named = kpp.NamedFunction(function, kpp.data.Schema(("dose", "age")))
        >>> kpp.explain(named, x[:1]).schema.feature_names
        ('dose', 'age')
    """

    rkhs_function: RKHSFunction
    schema: Schema = eqx.field(static=True)

    def __check_init__(self) -> None:
        batch_shape, output_shape = self.rkhs_function.batch_shape, self.rkhs_function.output_shape
        if batch_shape or output_shape:
            raise ValueError(
                "`rkhs_function` must have no draws and one output, got batch_shape "
                f"{batch_shape} and outputs of shape {output_shape}"
            )
        if np.shape(self.rkhs_function.points)[1:] != (self.schema.num_features,):
            raise ValueError(
                f"`rkhs_function` must have points with {self.schema.num_features} features, as `schema`, got shape "
                f"{np.shape(self.rkhs_function.points)}"
            )

    def function(self) -> RKHSFunction:
        """Return the function."""
        return self.rkhs_function

    @property
    def data(self) -> dict[str, np.ndarray]:
        """The points of the function under "x", from which `kpp.explain` takes a background if none is given."""
        return {"x": np.asarray(self.rkhs_function.spanned.points)}

    def predict(self, x: object) -> xr.Dataset:
        """Return the values of the function.

        Args:
            x: A data frame with (at least) the named columns, or an array (p, d).

        Returns:
            A dataset with the variable ``mean`` of dimension ``instance``.
        """
        return xr.Dataset({"mean": ("instance", call_in_chunks(self.rkhs_function, self.schema.read(x))[0])})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the function into a netCDF file, which the command `kpp explain` takes.

        Args:
            path: The file. It appears only when it is complete; an existing one is replaced.

        Raises:
            TypeError: If the kernel is not registered, so that it could not be loaded again.
        """
        function = self.rkhs_function
        description = {"format": _FORMAT, "kernel": to_spec(function.kernel), "schema": self.schema.to_json()}
        arrays = {
            "points": (("point", "feature"), np.asarray(function.points)),
            "coefficients": (("point",), np.asarray(function.coefficients)),
            "intercept": ((), np.asarray(function.intercept)),
        }
        netcdf.write(path, xr.Dataset(arrays, attrs={_MARK: json.dumps(description)}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> NamedFunction:
        """Read a function that `save` has written.

        Raises:
            FileNotFoundError: If the file does not exist.
            ValueError: If the file does not hold a function, or has a format that this version cannot read.
        """
        dataset = netcdf.read(path)[0]
        with netcdf.complete(path, "a function saved by kpp"):
            description = json.loads(dataset.attrs[_MARK])
            if description["format"] != _FORMAT:
                found = description["format"]
                raise ValueError(f"`path` {os.fspath(path)!r} has format {found}; this version of kpp reads {_FORMAT}")
            kernel, schema = from_spec(description["kernel"], "kernels"), Schema.from_json(description["schema"])
            points, coefficients, intercept = (
                jnp.asarray(dataset[name].values) for name in ("points", "coefficients", "intercept")
            )
        return cls(RKHSFunction(kernel, points, coefficients, intercept), schema)


def holds_named_function(path: str | os.PathLike[str]) -> bool:
    """Return whether a file holds a `NamedFunction`; the errors are those of `load`."""
    return _MARK in netcdf.read_attrs(path)


guard_exports(globals())
