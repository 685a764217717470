"""Naming schemes: the names and layouts of weights in Hugging Face, Meta and GGUF files."""
