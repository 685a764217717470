"""Edits of checkpoints: layers and experts removed, the vocabulary resized, the head untied, tensor-parallel shards cut and joined."""
