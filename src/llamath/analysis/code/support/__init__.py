"""Functions of PyTorch that written files contain, with all of their options.

Nothing here is imported to write a file: `specialize` reads the source.
"""
