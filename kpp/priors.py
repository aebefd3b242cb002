r"""Priors as leaves: a NumPyro distribution takes the place of a number and is drawn inside a model.

A kernel, a mean function or any other pytree may hold NumPyro distributions in place of some of its numbers. Inside a
NumPyro model, `sample` replaces each of them by a draw, a `numpyro.sample` site named after its path:
``kernel.lengthscale``, ``kernel.kernels.0.variance``. Numbers are unchanged. After inference, `substitute` puts draws
into the same places.

NumPyro distributions are pytrees themselves, so `jax.tree.map` over a tree that holds priors walks into the
distributions and corrupts them silently; every function here stops at them (`is_prior`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
import numpyro
from jax.typing import ArrayLike
from jaxtyping import PyTree
from numpyro.distributions import Distribution

from kpp.foundation.arguments import guard_exports
from kpp.foundation.supports import is_prior as is_prior
from kpp.foundation.supports import leaf_shape as leaf_shape

T = TypeVar("T")


class _Leaf(NamedTuple):
    """One leaf of a tree: its path, the name of its site, and its value."""

    path: str
    site: str
    value: Any


def has_priors(tree: PyTree) -> bool:
    """Return whether any leaf of a pytree is a prior."""
    return any(is_prior(leaf) for leaf in jax.tree.leaves(tree, is_leaf=is_prior))


def leaf_paths(tree: PyTree) -> tuple[str, ...]:
    """Return the paths of the leaves that hold a number, an array or a prior, in the order of the tree.

    A path is like ``"kernels.0.variance"``, and empty for a tree that is one leaf.
    """
    return tuple(leaf.path for leaf in _leaves("", tree) if _can_hold_prior(leaf.value))


def prior_sites(name: str, tree: PyTree, priors: Mapping[str, Any] | None = None) -> dict[str, Distribution]:
    """Return the sites that `sample` would create, without drawing.

    Args:
        name: The name of the tree, the first part of each site's name.
        tree: Any pytree with priors among its leaves.
        priors: Further priors by path, as for `sample`.

    Returns:
        For each site the distribution it is drawn from. All batch axes become event axes: a site is one variable.

    Raises:
        ValueError: As for `sample`.
        TypeError: As for `sample`.

    Example:
        >>> kernel = kpp.kernels.RBF(dist.LogNormal(0.0, 1.0), 2.0)
        >>> list(kpp.priors.prior_sites("kernel", kernel))
        ['kernel.lengthscale']
    """
    leaves = list(_leaves(name, tree))
    extra = _check_priors(leaves, priors or {})
    found = {leaf.site: extra.get(leaf.path, leaf.value) for leaf in leaves}
    return {site: prior.to_event(len(prior.batch_shape)) for site, prior in found.items() if is_prior(prior)}


def sample(name: str, tree: T, priors: Mapping[str, Any] | None = None) -> T:
    r"""Draw every prior of a pytree, inside a NumPyro model.

    Each leaf that holds a NumPyro distribution becomes a `numpyro.sample` site called ``name.path``, for example
    ``kernel.lengthscale`` for the field `lengthscale` of a tree called ``kernel``. A tree that is one distribution
    gives the site ``name``. Batch axes of a prior are independent coordinates of one variable (`to_event`), so that
    surrounding plates add their axes in front. All other leaves, of any type, are returned unchanged.

    Inside a plate each site leads with the plate's axis, but fixed leaves do not; `substitute` and `jax.vmap` over the
    sites' values give one tree per member of the plate.

    Args:
        name: The name of the tree, the first part of each site's name.
        tree: Any pytree with priors among its leaves: a kernel, an Equinox network, a dict, a single distribution.
        priors: Further priors by path (see `leaf_paths`), for trees that cannot hold priors, for example the network of
            another library. They replace the values in the tree. A scalar prior is expanded to the shape of the array
            it replaces; a scalar leaf takes a prior of any shape.

    Returns:
        The tree with arrays in place of priors.

    Raises:
        ValueError: If `priors` names a leaf that does not exist (the message lists those that do) or its shape does not
            fit, or if two leaves get the same site name.
        TypeError: If a value of `priors` is not a NumPyro distribution.

    Example:
        >>> def numpyro_model():
        ...     return kpp.sample("kernel", kpp.kernels.RBF(dist.LogNormal(), 2.0))
        >>> list(numpyro.handlers.trace(numpyro.handlers.seed(numpyro_model, 0)).get_trace())
        ['kernel.lengthscale']
    """
    draws = {site: numpyro.sample(site, prior) for site, prior in prior_sites(name, tree, priors).items()}
    return substitute(name, tree, draws)


def substitute(name: str, tree: T, values: Mapping[str, Any]) -> T:
    """Put values of sites into the places for which they were drawn, as `sample` does.

    Args:
        name: The name of the tree in `sample`.
        tree: The tree that was passed to `sample`.
        values: The value of each site, of one draw or with leading axes for many. Sites of other trees are ignored.

    Returns:
        The tree with the values in place; leaves without a site are kept.

    Raises:
        ValueError: If a prior of the tree has no value, or two leaves have the same site name.
    """
    leaves = list(_leaves(name, tree))
    _refuse_duplicates(leaves)
    missing = [leaf.site for leaf in leaves if is_prior(leaf.value) and leaf.site not in values]
    if missing:
        raise ValueError(f"`values` lacks the sites {missing}; it has {sorted(values)}")
    structure = jax.tree.structure(tree, is_leaf=is_prior)
    return jax.tree.unflatten(structure, [values.get(leaf.site, leaf.value) for leaf in leaves])


def _leaves(name: str, tree: PyTree) -> Iterator[_Leaf]:
    for path, value in jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_prior):
        where = jax.tree_util.keystr(path, simple=True, separator=".")
        yield _Leaf(where, f"{name}.{where}" if where else name, value)


def _can_hold_prior(value: object) -> bool:
    """Return True for numbers, arrays and priors; False for booleans and for functions that networks hold as leaves."""
    if is_prior(value) or (hasattr(value, "shape") and hasattr(value, "dtype")):
        return True
    return isinstance(value, (int, float, complex)) and not isinstance(value, bool)


def _check_priors(leaves: list[_Leaf], priors: Mapping[str, Any]) -> dict[str, Distribution]:
    """Return `priors` by path, each with the shape of its leaf, or raise an error if they are invalid."""
    _refuse_duplicates(leaves)
    known = {leaf.path: leaf.value for leaf in leaves if _can_hold_prior(leaf.value)}
    unknown = [path for path in priors if path not in known]
    if unknown:
        raise ValueError(
            f"`priors` is given for {unknown}, which are not leaves of the tree; its leaves are {list(known)}"
        )
    return {path: _fit_to_leaf(path, prior, known[path]) for path, prior in priors.items()}


def _fit_to_leaf(path: str, prior: object, leaf: ArrayLike | Distribution) -> Distribution:
    if not isinstance(prior, Distribution):
        raise TypeError(f"`priors` must hold NumPyro distributions, got {type(prior).__name__} for {path!r}")
    shape = () if isinstance(leaf, Distribution) else tuple(np.shape(leaf))
    if prior.shape() == shape or shape == ():
        return prior
    if prior.shape() == ():
        return prior.expand(shape)
    raise ValueError(
        f"`priors` must have the shape of the leaf: got a prior of shape {prior.shape()} for {path!r}, of shape {shape}"
    )


def _refuse_duplicates(leaves: list[_Leaf]) -> None:
    repeated = sorted(site for site, count in Counter(leaf.site for leaf in leaves).items() if count > 1)
    if repeated:
        raise ValueError(
            f"several leaves of the tree get the same site name: {repeated}; rename the keys that hold a dot"
        )


guard_exports(globals())
