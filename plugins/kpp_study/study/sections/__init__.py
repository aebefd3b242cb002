"""The sections of a study file, and its JSON Schema."""
