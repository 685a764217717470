"""Quantization schemes: how packed weights are detected, stored, sized and unpacked."""
