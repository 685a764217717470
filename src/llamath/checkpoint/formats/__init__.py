"""Readers of checkpoint formats: each returns a `Manifest`, trusts nothing in the file, and
executes, imports or resolves nothing.
"""
