"""Reports: one self-contained HTML file on a study or on an explanation."""
