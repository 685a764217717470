"""Conversion of checkpoints between formats: tensor names, layouts, dtypes, configuration and
tokenizer.
"""
