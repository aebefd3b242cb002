"""Preferences between items: matches, rankings and choices, and functions of items."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.preferences.item_function import ItemFunction as ItemFunction
from kpp.preferences.matches import Matches as Matches
from kpp.preferences.rankings import Rankings as Rankings

_guard_exports(globals())
