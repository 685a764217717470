"""Closed forms of families: their counts as expressions of the numbers in a configuration."""
