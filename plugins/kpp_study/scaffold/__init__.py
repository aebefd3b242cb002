"""Files to begin with: a study file for a table, and a plugin to change; `kpp new` writes them."""
