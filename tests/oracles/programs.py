"""Parts of kpp that tests compare with, compiled: one program each where eager calls would compile many."""

from __future__ import annotations

import equinox as eqx


@eqx.filter_jit
def gram(kernel, points):
    return kernel.gram(points)


@eqx.filter_jit
def moments(process, points):
    return process.mean(points), process.covariance(points, points)
