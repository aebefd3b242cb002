r"""Small neural networks and the loop that trains them, for models to explain and for explainers that are networks.

A network is a pytree of arrays that is called with one point, such as `MLP` or any module of Equinox; a loss is a
function of a network and some rows of the data. Training is compiled once for a network, a loss and shapes of data, and
several networks are trained side by side in little more time than one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from numpy.typing import ArrayLike

from kpp.foundation.validation import at_least, count, positive
from kpp.runtime.batching import progress_bar
from kpp.typing import Numbers, RngKey

# The largest number of updates of the progress bar.
_STEPS = 20


class MLP(eqx.Module):
    r"""A fully connected network of one point.

    .. math:: h_l = a(W_l h_{l-1} + b_l), \qquad a(t) = \log(1 + e^{\beta t}) / \beta, \qquad f(x) = W_L h_{L-1} + b_L

    Args:
        rng_key: A JAX random key for the initial weights, uniform between :math:`\pm 1 / \sqrt{\text{inputs}}`.
        sizes: The widths of all layers, from the features d to the outputs q.
        beta: :math:`\beta`, how sharply the Softplus bends at 0; None for its limit, the ReLU.

    Raises:
        ValueError: If there are fewer than two sizes, one is not positive, or `beta` is not positive.
    """

    layers: tuple[eqx.nn.Linear, ...]
    beta: float | None = eqx.field(static=True)

    def __init__(self, rng_key: RngKey, sizes: Sequence[int], *, beta: float | None = None) -> None:
        sizes = tuple(int(size) for size in sizes)
        if len(sizes) < 2 or min(sizes) < 1:
            raise ValueError(f"`sizes` must be at least two positive widths, got {sizes}")
        if beta is not None:
            positive(beta, "beta")
        self.layers = _layers(rng_key, sizes)
        self.beta = None if beta is None else float(beta)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " q"]:
        """Return the outputs at one point."""
        for layer in self.layers[:-1]:
            x = activate(layer(x), self.beta)
        return self.layers[-1](x)

    @property
    def num_features(self) -> int:
        """The number of features of a point, d."""
        return int(self.layers[0].weight.shape[1])


def activate(t: Array, beta: float | None) -> Array:
    r"""Return the Softplus :math:`\log(1 + e^{\beta t}) / \beta`, or its limit, the ReLU, if `beta` is None."""
    return jax.nn.relu(t) if beta is None else jax.nn.softplus(beta * t) / beta


@eqx.filter_jit
def _layers(rng_key: RngKey, sizes: tuple[int, ...]) -> tuple[eqx.nn.Linear, ...]:
    keys = jax.random.split(rng_key, len(sizes) - 1)
    pairs = zip(sizes[:-1], sizes[1:], keys, strict=True)
    return tuple(eqx.nn.Linear(inputs, outputs, key=key) for inputs, outputs, key in pairs)


class Trained(NamedTuple):
    """The result of training.

    Attributes:
        network: The network after the last epoch; the arrays of an ensemble lead with its m members.
        losses: The mean loss of each epoch without the penalty, (num_epochs,), or (m, num_epochs) for an ensemble.
    """

    network: Any
    losses: Float[np.ndarray, "*m num_epochs"]


def train(
    rng_key: RngKey,
    network: PyTree,
    loss: Callable[..., Any],
    data: PyTree,
    *,
    num_epochs: int = 100,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    l2: float = 0.0,
    progress: bool = True,
    label: str = "train",
) -> Trained:
    r"""Train a network by Adam on minibatches.

    .. math:: \min_w \; \frac{1}{n} \sum_{i=1}^n \ell(w; z_i) + \frac{l_2}{2} \sum_l \lVert W_l \rVert^2

    The penalty is on weights (arrays of two or more dimensions) and not on biases. The learning rate falls to 0 along
    half a cosine. Each epoch shuffles the rows and takes them in batches of equal size, the last filled up with rows
    that the epoch has seen before.

    Args:
        rng_key: A JAX random key, for the order of the rows.
        network: The initial network; its floating-point arrays are trained.
        loss: A function from the network and a batch, a pytree like `data`, to the mean loss of the batch's rows.
            Define it once: functions are distinguished by identity, so every new lambda is compiled again.
        data: A pytree of arrays that lead with the n rows.
        num_epochs: The number of passes over the rows.
        batch_size: The most rows in one step.
        learning_rate: The first step size of Adam.
        l2: :math:`l_2`, the penalty on weights, also called weight decay.
        progress: Whether to show a bar, after one second.
        label: The text in front of the bar.

    Raises:
        ValueError: If an option is out of range, rows do not agree, or the loss is not finite at the end.
    """
    trained = train_ensemble(
        rng_key,
        _as_ensemble(network),
        loss,
        data,
        num_epochs=num_epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        l2=l2,
        progress=progress,
        label=label,
    )
    return Trained(_only_member(trained.network), trained.losses[0])


def train_ensemble(
    rng_key: RngKey,
    networks: PyTree,
    loss: Callable[..., Any],
    data: PyTree,
    *,
    rows: Numbers | None = None,
    num_epochs: int = 100,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    l2: float = 0.0,
    progress: bool = True,
    label: str = "train",
) -> Trained:
    """Train several networks side by side, each as `train` does, on all rows or its own.

    Args:
        rng_key: A JAX random key.
        networks: A network whose arrays lead with its m members, such as ``eqx.filter_vmap(build)(keys)`` makes.
        loss: As for `train`, of a single network.
        data: A pytree of arrays that lead with the n rows.
        rows: Which rows each member learns from, positions of shape (m, k), for example bootstrap samples. None for all
            rows.
        num_epochs: The number of passes of each member over its rows.
        batch_size: The most rows in one step.
        learning_rate: The first step size of Adam.
        l2: The penalty on weights.
        progress: Whether to show a bar, after one second.
        label: The text in front of the bar.

    Returns:
        The trained networks, their arrays leading with m, and losses (m, num_epochs).

    Raises:
        ValueError: If an option is out of range, rows do not agree, or a loss is not finite at the end.
    """
    _check_options(num_epochs, batch_size, learning_rate, l2)
    data = jax.tree.map(_as_array, data)
    arrays, rest = eqx.partition(networks, eqx.is_inexact_array)
    members = _leading(jax.tree.leaves(arrays), "networks")
    rows = _rows(rows, members, _leading(jax.tree.leaves(data), "data"))
    steps = math.ceil(rows.shape[1] / batch_size)
    keys = jax.random.split(rng_key, members)
    rates = jnp.asarray([learning_rate, l2], jnp.result_type(float))
    state = (arrays, _moments(arrays, rates), jnp.asarray(np.zeros((members, num_epochs)), jnp.result_type(float)))
    chunk = math.ceil(num_epochs / _STEPS)
    with progress_bar(num_epochs, label, unit="epoch", show=progress) as bar:
        for first in range(0, num_epochs, chunk):
            stop = min(first + chunk, num_epochs)
            state = _run_epochs(state, rest, loss, data, rows, keys, rates, jnp.asarray([first, stop], int), steps)
            jax.block_until_ready(state)
            bar.update(stop - first)
    losses = np.asarray(state[2])
    if not np.isfinite(losses).all():
        raise ValueError(f"the loss must stay finite; `learning_rate` {learning_rate} may be too large for it")
    return Trained(eqx.combine(state[0], rest), losses)


def _check_options(num_epochs: int, batch_size: int, learning_rate: float, l2: float) -> None:
    count(num_epochs, "num_epochs")
    count(batch_size, "batch_size")
    positive(learning_rate, "learning_rate")
    at_least(l2, "l2", 0)


def _as_array(leaf: ArrayLike) -> Array:
    """Return a JAX array; with a type given, JAX need not compile the conversion of an array of NumPy."""
    return leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf, jnp.result_type(leaf))


def _leading(leaves: list[Any], name: str) -> int:
    """Return the length of the leading axis that all arrays share."""
    sizes = {np.shape(leaf)[:1] for leaf in leaves}
    if len(sizes) != 1 or not next(iter(sizes)) or 0 in next(iter(sizes)):
        raise ValueError(f"`{name}` must be arrays with one length of the leading axis, got {sorted(sizes)}")
    return int(next(iter(sizes))[0])


def _rows(rows: Numbers | None, members: int, n: int) -> Array:
    """Return the rows of each member, (m, k)."""
    if rows is None:
        return jnp.asarray(np.broadcast_to(np.arange(n), (members, n)), int)
    rows = np.asarray(rows)
    if rows.ndim != 2 or rows.shape[0] != members or rows.size == 0 or rows.dtype.kind not in "iu":
        raise ValueError(f"`rows` must be positions of shape ({members}, k), got {rows.dtype} of shape {rows.shape}")
    if rows.min() < 0 or rows.max() >= n:
        raise ValueError(f"`rows` must be from 0 to {n - 1}, got {rows.min()} to {rows.max()}")
    return jnp.asarray(rows.astype(int), int)


@eqx.filter_jit
def _as_ensemble(network: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, network)


@eqx.filter_jit
def _only_member(networks: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, networks)


def _adam(rates: Array, total: int) -> Any:
    """Return Adam on the loss with the penalty; its step size falls to 0 along half a cosine."""
    import optax  # loaded on use

    penalty = optax.add_decayed_weights(rates[1], lambda tree: jax.tree.map(lambda leaf: leaf.ndim >= 2, tree))
    return optax.chain(penalty, optax.adam(optax.cosine_decay_schedule(rates[0], total)))


@jax.jit
def _moments(arrays: PyTree, rates: Array) -> PyTree:
    return jax.vmap(_adam(rates, 1).init)(arrays)


@eqx.filter_jit
def _run_epochs(
    state: PyTree,
    rest: PyTree,
    loss: Callable[..., Array],
    data: PyTree,
    rows: Array,
    keys: Array,
    rates: Array,
    epochs: Array,
    steps: int,
) -> Any:
    """Train every member for some epochs, from the first of two numbers up to and excluding the second."""
    adam = _adam(rates, state[2].shape[1] * steps)

    def member(state: PyTree, rest: PyTree, rows: Array, key: Array) -> Any:
        def step(carry: PyTree, index: Array) -> Any:
            arrays, moments = carry
            batch = jax.tree.map(lambda leaf: leaf[index], data)
            value, gradient = jax.value_and_grad(lambda arrays: loss(eqx.combine(arrays, rest), batch))(arrays)
            updates, moments = adam.update(gradient, moments, arrays)
            moved = eqx.apply_updates(arrays, updates), moments
            return jax.tree.map(lambda new, old: new.astype(old.dtype), moved, carry), value

        def epoch(number: Array, state: PyTree) -> Any:
            arrays, moments, losses = state
            batches = _batches(jax.random.fold_in(key, number), rows, steps)
            (arrays, moments), values = jax.lax.scan(step, (arrays, moments), batches)
            return arrays, moments, losses.at[number].set(values.mean())

        return jax.lax.fori_loop(epochs[0], epochs[1], epoch, state)

    return eqx.filter_vmap(member)(state, rest, rows, keys)


def _batches(key: RngKey, rows: Array, steps: int) -> Array:
    """Shuffle the rows and split them into equal batches, (steps, b); the last is filled up with the first rows."""
    shuffled = jax.random.permutation(key, rows)
    missing = -rows.shape[0] % steps
    return jnp.concatenate([shuffled, shuffled[:missing]]).reshape(steps, -1)
