"""Tests of two samples, of independence and of conditional independence."""
