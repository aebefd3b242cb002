"""The data of a study: tables are read, checked and standardized."""
