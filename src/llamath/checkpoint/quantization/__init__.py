"""Quantization schemes: how packed weights are detected, laid out, sized and unpacked."""
