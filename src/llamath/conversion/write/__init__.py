"""Writing a converted checkpoint: its tensors, tokenizer and configuration in each format,
staged so that it appears at once.
"""
