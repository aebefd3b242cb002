"""Effects of treatments from one table and one graph, with their uncertainty."""

from kpp.effects.causal_effect import causal_effect as causal_effect
from kpp.effects.effect import CausalEffect as CausalEffect
from kpp.effects.overlap import effective_rows as effective_rows
