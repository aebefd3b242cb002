"""Hamiltonian Monte Carlo on subsamples of the rows, and how far the sampled density is from that of all rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import equinox as eqx
import jax
from numpyro.infer import HMCECS, NUTS
from numpyro.infer.util import potential_energy, unconstrain_fn

from kpp.inference.base import CalledWith, Data, NumpyroModel, Site, trace
from kpp.inference.methods.map import MAP
from kpp.inference.methods.optimum import with_units

_NUM_BLOCKS = 10  # in each step a tenth of the subsample may be drawn anew


def subsampling_nuts(rng_key: jax.Array, numpyro_model: NumpyroModel, data: Data, sites: Mapping[str, Site]) -> HMCECS:
    r"""Return NumPyro's sampler of a model with a subsampled plate, whose likelihood is corrected at the mode.

    The log likelihood of n rows is estimated from the b rows u of a subsample by

    .. math::

        \hat\ell(\theta) = \sum_{i=1}^n q_i(\theta) + \frac{n}{b} \sum_{i \in u} [\ell_i(\theta) - q_i(\theta)]
        - \tfrac12 \hat\sigma^2(\theta)

    where :math:`q_i` is the second-order expansion of :math:`\ell_i` around the mode of the posterior, and
    :math:`\hat\sigma^2` estimates the variance of the second term. Raises ValueError if no plate draws subsamples, or a
    latent site is in such a plate.

    References:
        K.-D. Dang, M. Quiroz, R. Kohn, M.-N. Tran, M. Villani (2019). Hamiltonian Monte Carlo with energy conserving
        subsampling. JMLR 20.
    """
    plates = _subsampled_plates(numpyro_model, data)
    if not plates:
        raise ValueError(
            '`sampler` "hmcecs" needs a plate whose `subsample_size` is below its size; the models of kpp with '
            "`minibatch` have one. This model has none"
        )
    local = [name for name, site in sites.items() if site.kind == "latent" and plates & set(site.plates)]
    if local:
        raise ValueError(
            f'`sampler` "hmcecs" needs latent sites outside subsampled plates, but {local[0]!r} is inside one; use '
            "kpp.NUTS"
        )
    found = MAP(progress=False).run(rng_key, numpyro_model, data).samples
    mode = {name: found[name][0, 0] for name, site in sites.items() if site.kind == "latent"}
    inner = NUTS(with_units(CalledWith(numpyro_model, subsample=True), data))
    return HMCECS(inner, num_blocks=_NUM_BLOCKS, proxy=HMCECS.taylor_proxy(mode, degree=2))


def density_spread(numpyro_model: NumpyroModel, data: Data, latent: dict[str, jax.Array], energies: jax.Array) -> float:
    """Return the standard deviation, over draws, of the log density of all rows minus the sampled one, (chain, draw).

    It is 0 if the sampler draws from the posterior itself.
    """
    return float((energies - _energies(CalledWith(numpyro_model), latent, data)).std())


@eqx.filter_jit
def _energies(model: CalledWith, latent: dict[str, jax.Array], data: Data) -> jax.Array:
    """Return the negative log densities of all rows in unconstrained coordinates, (chain, draw)."""

    def one(draw: dict[str, jax.Array]) -> jax.Array:
        return potential_energy(model, (data,), {}, unconstrain_fn(model, (data,), {}, draw))

    return jax.lax.map(partial(jax.lax.map, one), latent)


def _subsampled_plates(numpyro_model: NumpyroModel, data: Data) -> set[str]:
    plates: set[str] = set()

    def look(arguments: Data) -> None:
        for name, site in trace(numpyro_model, arguments, subsample=True).items():
            if site["type"] == "plate" and site["args"][0] > (site["args"][1] or site["args"][0]):
                plates.add(name)

    jax.eval_shape(look, data)
    return plates
