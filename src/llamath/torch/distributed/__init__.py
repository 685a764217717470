"""Tensor parallelism and FSDP."""
