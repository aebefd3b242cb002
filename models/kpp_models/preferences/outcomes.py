r"""Likelihoods of matches: wins, ties and losses given the latent preference g of one item over another.

==============  =======================  ==========================================
likelihood      P(win)                   P(tie)
==============  =======================  ==========================================
logit           :math:`\sigma(g)`        none
probit          :math:`\Phi(g)`          none
ordinal         :math:`\sigma(g - t)`    :math:`\sigma(g + t) - \sigma(g - t)`
ordinal-probit  :math:`\Phi(g - t)`      :math:`\Phi(g + t) - \Phi(g - t)`
==============  =======================  ==========================================

A loss is a win of the other item, P(loss | g) = P(win | -g). Matches of one pair are counted: a row of counts is (wins,
ties, losses).
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, log_ndtr
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from kpp.gp import AbstractPointwiseLikelihood, log_likelihood, probability
from kpp.gp.toolkit import LOG_TWO_PI, Derivatives, derivatives, expected_log_probability, expected_softplus
from kpp.typing import AnyArray

#: The link of each likelihood, and whether it allows ties.
LIKELIHOODS = {
    "logit": ("logit", False),
    "probit": ("probit", False),
    "ordinal": ("logit", True),
    "ordinal-probit": ("probit", True),
}


class Outcomes(eqx.Module):
    """The law of the outcome of a match given the latent preference, with the width t of ties where there are ties."""

    likelihood: str = eqx.field(static=True)
    tie_width: Any = None

    @property
    def link(self) -> str:
        """The link, "logit" or "probit"."""
        return LIKELIHOODS[self.likelihood][0]

    @property
    def has_ties(self) -> bool:
        """Whether a match can be a tie."""
        return LIKELIHOODS[self.likelihood][1]

    @property
    def width(self) -> Any:
        """The width t, 0 without ties."""
        return self.tie_width if self.has_ties else 0.0

    def probabilities(self, g: Float[AnyArray, "*n"]) -> tuple[Array, Array, Array]:
        """Return the probabilities of a win, a tie and a loss given g, elementwise."""
        win, loss = (probability(self.link, side - self.width) for side in (g, -g))
        return win, jnp.maximum(1.0 - win - loss, 0.0) if self.has_ties else jnp.zeros_like(win), loss

    def score(self, g: Float[AnyArray, "*n"]) -> Float[Array, "*n"]:
        """Return the probability of a win plus half that of a tie, given g: increasing in g, and 1/2 at 0."""
        win, _, loss = self.probabilities(g)
        return 0.5 + 0.5 * (win - loss) if self.has_ties else win  # P(win) + P(tie) / 2

    def predict(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> dict[str, Float[Array, " n"]]:
        r"""Return the probabilities of outcomes for :math:`g \sim N(\mu, v)`, elementwise.

        They are ``probability``, of a win plus half the probability of a tie, so that the values of both sides of a
        match sum to 1; and ``probability_tie``, if the likelihood has ties.
        """
        if not self.has_ties:
            return {"probability": _chance(self.link, mean, variance)}
        win, loss = (_chance(self.link, side - self.width, variance) for side in (mean, -mean))
        return {"probability": 0.5 + 0.5 * (win - loss), "probability_tie": jnp.maximum(1.0 - win - loss, 0.0)}

    def draw(self, key: Array, g: Float[AnyArray, "*n"], trials: Float[AnyArray, " m"]) -> Float[Array, "*n 3"]:
        """Draw the wins, ties and losses of some matches of each pair."""
        first, second = jax.random.split(key)
        win, tie, loss = self.probabilities(g)
        trials = jnp.broadcast_to(trials, g.shape)
        wins = jax.random.binomial(first, trials, win, dtype=win.dtype)
        ties = jnp.zeros_like(wins)
        if self.has_ties:
            share = tie / jnp.maximum(tie + loss, jnp.finfo(win.dtype).tiny)  # of those that were not won
            ties = jax.random.binomial(second, trials - wins, jnp.clip(share, 0.0, 1.0), dtype=win.dtype)
        return jnp.stack([wins, ties, trials - wins - ties], axis=-1)


class OutcomeLikelihood(AbstractPointwiseLikelihood):
    r"""The likelihood of the matches of m pairs, one latent preference each; y holds wins, ties and losses, (m, 3).

    .. math:: \log p(w, t, l \mid g) = \log \frac{(w + t + l)!}{w!\, t!\, l!} + w \log P_\text{win}(g)
            + t \log P_\text{tie}(g) + l \log P_\text{win}(-g)
    """

    per_observation: ClassVar[tuple[str, ...]] = ("y", "trials")

    y: Any
    outcomes: Outcomes
    trials: Any = None

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return (3,)

    @property
    def support(self) -> Any:
        return constraints.independent(constraints.nonnegative, 1)

    def log_density(self, f: Float[AnyArray, "*m"]) -> Float[Array, "*m"]:
        wins, ties, losses = self._split()
        width, link = self.outcomes.width, self.outcomes.link
        total = wins * _log_win(link, f - width) + losses * _log_win(link, -f - width)
        if self.outcomes.has_ties:
            total = total + jnp.where(ties > 0, ties * _log_tie(link, f, self._positive_width(ties)), 0.0)
        return total + _log_ways(wins, ties, losses)

    def derivatives(self, f: Float[AnyArray, " m"]) -> Derivatives:
        wins, ties, losses = self._split()
        width, link = self.outcomes.width, self.outcomes.link
        counts, parts = [wins, losses], [derivatives(link, jnp.ones_like(f), f - width)]
        parts.append(derivatives(link, jnp.zeros_like(f), f + width))
        if self.outcomes.has_ties:
            counts.append(ties)
            parts.append(_tie_derivatives(link, f, self._positive_width(ties)))
        orders = zip(*parts, strict=True)
        return Derivatives(*(sum(count * part for count, part in zip(counts, order, strict=True)) for order in orders))

    def draw(self, rng_key: Array, f: Float[AnyArray, " p"]) -> Float[Array, " p"]:
        """Draw the outcome of one match for each latent preference: 1 for a win, 0 for a loss, 1/2 for a tie."""
        counts = self.outcomes.draw(rng_key, f, jnp.ones_like(f))
        return counts[:, 0] + 0.5 * counts[:, 1]

    def draw_observed(self, rng_key: Array, f: Float[AnyArray, " m"]) -> Float[Array, "m 3"]:
        return self.outcomes.draw(rng_key, f, self.trials)

    def predict(self, mean: Float[AnyArray, " p"], variance: Float[AnyArray, " p"]) -> dict[str, Float[Array, " p"]]:
        return self.outcomes.predict(mean, variance)

    def expected_log_density(self, mean: Float[AnyArray, " m"], variance: Float[AnyArray, " m"]) -> Float[Array, " m"]:
        r"""Return :math:`E \log p`; by `kpp.gp.integrals.expectations.expected_softplus` for the logit."""
        if self.outcomes.link != "logit":
            return super().expected_log_density(mean, variance)
        wins, ties, losses = self._split()
        width = self.outcomes.width
        below, above = (expected_softplus(side + width, variance) for side in (-mean, mean))
        total = -wins * below - losses * above
        if self.outcomes.has_ties:
            # `_log_tie` with log sigma(z) = z - softplus(z) at z = f + t and z = t - f.
            both = _log_gap(self._positive_width(ties)) + 2.0 * width - below - above
            total = total + jnp.where(ties > 0, ties * both, 0.0)
        return total + _log_ways(wins, ties, losses)

    def _split(self) -> tuple[Array, Array, Array]:
        counts = jax.lax.stop_gradient(self.y)
        return counts[..., 0], counts[..., 1], counts[..., 2]

    def _positive_width(self, ties: Array) -> Array:
        """Return the width, but 1 for pairs without ties, for which a width of 0 is allowed."""
        return jnp.where(ties > 0, self.outcomes.width, 1.0)


def _log_ways(wins: Array, ties: Array, losses: Array) -> Array:
    """Return the logarithm of the number of orders of the matches, the multinomial coefficient."""
    return gammaln(wins + ties + losses + 1.0) - gammaln(wins + 1.0) - gammaln(ties + 1.0) - gammaln(losses + 1.0)


def _chance(link: str, mean: AnyArray, variance: AnyArray) -> Array:
    """Return the probability of label 1, such that the values for opposite means are exactly complementary."""
    small = jnp.exp(expected_log_probability(link, jnp.zeros_like(mean), jnp.abs(mean), variance))
    return jnp.where(mean == 0, 0.5, jnp.where(mean > 0, 1.0 - small, small))


def _log_win(link: str, margin: AnyArray) -> Array:
    return log_likelihood(link, jnp.ones_like(margin), margin)


def _log_tie(link: str, f: AnyArray, width: Array) -> Array:
    r"""Return the log probability of a tie; for the logit :math:`\sigma(f + t)\, \sigma(t - f)\, (1 - e^{-2t})`."""
    if link == "logit":
        return jax.nn.log_sigmoid(f + width) + jax.nn.log_sigmoid(width - f) + _log_gap(width)
    # Of the two tails, which are the same function of f, use the one in which the difference does not lose digits.
    side = jnp.where(f > 0, -1.0, 1.0) * f
    upper, lower = log_ndtr(side + width), log_ndtr(side - width)
    return upper + jnp.log(-jnp.expm1(lower - upper))


def _log_gap(width: Array) -> Array:
    return jnp.log(-jnp.expm1(-2.0 * width))  # 1 - exp(-2 t) would lose the digits of a small t


def _tie_derivatives(link: str, f: AnyArray, width: Array) -> Derivatives:
    """Return the derivatives of the log probability of a tie."""
    f = jnp.asarray(f)
    above, below = f + width, f - width
    if link == "logit":
        parts = (derivatives(link, jnp.ones_like(f), above), derivatives(link, jnp.zeros_like(f), below))
        return Derivatives(*(first + second for first, second in zip(*parts, strict=True)))
    scale = _log_tie(link, f, width)
    high, low = (jnp.exp(-0.5 * (z**2 + LOG_TWO_PI) - scale) for z in (above, below))
    # With p' / p, p'' / p and p''' / p follow the derivatives of log p; `scale` keeps all three from underflow.
    first = high - low  # p' / p, where p = Phi(f + t) - Phi(f - t)
    second = below * low - above * high
    third = (above**2 - 1.0) * high - (below**2 - 1.0) * low
    return Derivatives(first, first**2 - second, third - 3.0 * first * second + 2.0 * first**3)
