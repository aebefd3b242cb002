"""Discrete latent sites: summed out of the density that inferences use, and drawn afterwards given the other sites."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import numpyro
from numpyro import handlers
from numpyro.infer.util import compute_log_probs

from kpp.foundation.distribution import extra
from kpp.inference.base import Data, NumpyroModel, Posterior, Site, whole_plates
from kpp.typing import RngKey


class Marginalized(eqx.Module):
    r"""A NumPyro model whose discrete latent sites z are summed out.

    .. math:: p(y, \theta) = \sum_z p(y, z, \theta)

    Its latent sites are the continuous ones. It has a factor in place of the observed sites, and no deterministic
    sites, because these may depend on z.
    """

    numpyro_model: NumpyroModel
    discrete: tuple[str, ...] = eqx.field(static=True)  # names of latent sites
    others: tuple[str, ...] = eqx.field(static=True)  # names of observed and deterministic sites
    first_axis: int = eqx.field(static=True)  # counted from the last; enumerated values have theirs before it

    def __call__(self, **data: Any) -> None:
        """Run the model on all rows; the values of its discrete sites must be finitely many."""
        from numpyro.contrib.funsor import config_enumerate, enum, log_density

        model = whole_plates(self.numpyro_model)
        hidden = (*self.discrete, *self.others)
        # The continuous latent sites reach the handlers of the caller, as the sites of this model. Sites are hidden by
        # name, because factors that the caller adds, such as the Jacobians of bijections, pass here too.
        one = handlers.block(handlers.substitute(model, substitute_fn=self._first_value), hide=hidden)
        found = handlers.trace(one).get_trace(**data).items()
        latent = {name: site["value"] for name, site in found if site["type"] == "sample" and not site["is_observed"]}
        with handlers.block(), jax.numpy_rank_promotion("allow"):  # of axes of enumerated values
            densities, _ = compute_log_probs(one, (), data, latent)
            joint, _ = log_density(enum(config_enumerate(model), self.first_axis), (), data, latent)
        # The caller adds the densities of the continuous sites given these values of z.
        numpyro.factor("_marginalized", joint - sum(densities.values()))

    def _first_value(self, site: Mapping[str, Any]) -> Any:
        if site["name"] not in self.discrete:
            return None
        if not site["fn"].has_enumerate_support:
            law = getattr(site["fn"], "base_dist", site["fn"])  # a plate expands it
            raise ValueError(
                f"the latent site {site['name']!r} must have finitely many values, which are summed out, got the "
                f"distribution {type(law).__name__}; use a Categorical over the values that matter"
            )
        return site["fn"].enumerate_support(expand=True)[0]


def infer_all(
    rng_key: RngKey,
    numpyro_model: NumpyroModel,
    data: Data,
    sites: Mapping[str, Site],
    infer: Callable[[NumpyroModel], Posterior],  # a function of the model without discrete latent sites
) -> Posterior:
    """Return the posterior of a model that may have discrete latent sites.

    Raises ImportError if there are discrete sites, and funsor, which sums over them, is not installed.
    """
    discrete = tuple(name for name, site in sites.items() if site.discrete)
    if not discrete:
        return infer(numpyro_model)
    try:
        from numpyro.contrib.funsor import config_enumerate, infer_discrete
    except ImportError as error:
        raise ImportError(
            f"the discrete latent sites {list(discrete)} need funsor, which is an extra: {extra('discrete')}"
        ) from error
    first_axis = -1 - max(len(site.plates) for site in sites.values())
    others = tuple(name for name, site in sites.items() if site.kind != "latent")
    posterior = infer(Marginalized(numpyro_model, discrete, others, first_axis))
    names = (*discrete, *(name for name in others if sites[name].kind == "deterministic"))

    @jax.jit
    def draw(keys: jax.Array, latent: dict[str, jax.Array], data: Data) -> dict[str, jax.Array]:
        def one(item: tuple[jax.Array, dict[str, jax.Array]]) -> dict[str, jax.Array]:
            given = config_enumerate(handlers.substitute(whole_plates(numpyro_model), data=item[1]))
            drawn = infer_discrete(given, first_available_dim=first_axis, rng_key=item[0])
            found = handlers.trace(handlers.seed(drawn, item[0])).get_trace(**data)
            return {name: found[name]["value"] for name in names}

        return jax.lax.map(jax.tree_util.Partial(jax.lax.map, one), (keys, latent))

    shape = next((value.shape[:2] for value in posterior.samples.values()), (1, 1))
    with jax.numpy_rank_promotion("allow"):
        found = draw(jax.random.split(rng_key, shape), posterior.samples, data)
    return dataclasses.replace(posterior, samples={**posterior.samples, **found})
