"""Readers of strangers' files: each gives a `Manifest` and believes nothing (DESIGN: no reader executes, resolves or renders)."""
