"""GGUF metadata, read as a Hugging Face configuration.

Only keys whose meaning is known are read; those of the others that could matter are reported, and
an architecture that no family here has is refused by name: its tensors can still be counted from
the header.
"""
