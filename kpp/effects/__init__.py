"""Effects of treatments from one table and one graph, with their uncertainty."""

from kpp.arguments import guard_exports as _guard_exports
from kpp.effects.causal_effect import causal_effect as causal_effect
from kpp.effects.effect import CausalEffect as CausalEffect
from kpp.effects.instruments import InstrumentalMean as InstrumentalMean
from kpp.effects.instruments import InstrumentalRegression as InstrumentalRegression
from kpp.effects.instruments import instrumental_effect as instrumental_effect
from kpp.effects.instruments import instrumental_regression as instrumental_regression
from kpp.effects.overlap import effective_rows as effective_rows

_guard_exports(globals())
