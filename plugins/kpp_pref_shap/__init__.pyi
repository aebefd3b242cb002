from .concatenation import as_concatenated as as_concatenated
from .concatenation import as_utility as as_utility
from .context_game import PreferentialContext as PreferentialContext
from .explainer import PrefShap as PrefShap
from .item_game import PreferentialItems as PreferentialItems
