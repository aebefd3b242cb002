"""Figures of a report, as images or inline SVG, and their text alternatives."""
