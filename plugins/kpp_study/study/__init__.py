"""Studies: from a table and a TOML file to a fitted model, its explanation and a report."""
