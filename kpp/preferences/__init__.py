"""Preferences between items: matches, rankings and choices, clusters, and statistics of the graph of matches."""

from kpp.arguments import guard_exports as _guard_exports
from kpp.preferences.clusters import ClusterChoice as ClusterChoice
from kpp.preferences.clusters import choose_num_clusters as choose_num_clusters
from kpp.preferences.clusters import clustering_accuracy as clustering_accuracy
from kpp.preferences.clusters import comparable_clusters as comparable_clusters
from kpp.preferences.clusters import partial_ranking_clusters as partial_ranking_clusters
from kpp.preferences.clusters import svd_clusters as svd_clusters
from kpp.preferences.distinct import distinct_contexts as distinct_contexts
from kpp.preferences.distinct import distinct_items as distinct_items
from kpp.preferences.item_function import ItemFunction as ItemFunction
from kpp.preferences.item_tables import PreferenceTerm as PreferenceTerm
from kpp.preferences.item_tables import check_contexts as check_contexts
from kpp.preferences.item_tables import entries_at_pairs as entries_at_pairs
from kpp.preferences.item_tables import multiply_skew as multiply_skew
from kpp.preferences.item_tables import preference_terms as preference_terms
from kpp.preferences.item_tables import row_sums as row_sums
from kpp.preferences.item_tables import skew_table as skew_table
from kpp.preferences.matches import Matches as Matches
from kpp.preferences.ranking import Ranking as Ranking
from kpp.preferences.ranking import rank_items as rank_items
from kpp.preferences.rankings import Rankings as Rankings
from kpp.preferences.statistics import count_cycles as count_cycles
from kpp.preferences.statistics import mean_clustering_coefficient as mean_clustering_coefficient
from kpp.preferences.statistics import spectral_rankability as spectral_rankability

_guard_exports(globals())
