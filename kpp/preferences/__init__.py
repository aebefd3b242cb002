"""Preferences between items: matches, and what their graph and a fitted model say about rankings and clusters."""

from kpp.preferences.item_function import ItemFunction as ItemFunction
from kpp.preferences.item_tables import PreferenceTerm as PreferenceTerm
from kpp.preferences.item_tables import distinct_items as distinct_items
from kpp.preferences.item_tables import multiply_skew as multiply_skew
from kpp.preferences.item_tables import preference_terms as preference_terms
from kpp.preferences.item_tables import row_sums as row_sums
from kpp.preferences.item_tables import skew_table as skew_table
from kpp.preferences.matches import Matches as Matches
