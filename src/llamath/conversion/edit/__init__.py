"""Edits of checkpoints: layers removed, the vocabulary resized, tensor-parallel shards cut and
joined.
"""
