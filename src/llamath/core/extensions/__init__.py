"""Blocks beyond the plain transformer: several residual streams, attention to compressed
windows, tables of n-grams.
"""
