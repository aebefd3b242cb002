"""Preferences between items: matches, and what their graph and a fitted model say about rankings and clusters."""

from kpp.preferences.matches import Matches as Matches
