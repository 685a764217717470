"""Quantization schemes: how packed weights are detected, stored, sized and unpacked."""

QUANTIZATION_KEYS = ("quantization_config", "compression_config", "quantization")
"""Keys of `config.json` that declare a quantization."""
