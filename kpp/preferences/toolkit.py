"""More of `kpp.preferences`, for authors of models and plugins; names may change in minor versions."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.preferences._reading import distinct_contexts as distinct_contexts
from kpp.preferences._reading import distinct_items as distinct_items
from kpp.preferences.item_function import PreferenceTerm as PreferenceTerm
from kpp.preferences.item_function import check_contexts as check_contexts
from kpp.preferences.item_function import entries_at_pairs as entries_at_pairs
from kpp.preferences.item_function import multiply_skew as multiply_skew
from kpp.preferences.item_function import preference_terms as preference_terms
from kpp.preferences.item_function import row_sums as row_sums
from kpp.preferences.item_function import skew_table as skew_table

_guard_exports(globals())
