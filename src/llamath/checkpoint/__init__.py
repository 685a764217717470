"""Checkpoint files: formats, tensor names, quantization schemes, GGUF metadata and remote
storage.
"""
