"""The contents of the report of a study, computed from its fit."""
