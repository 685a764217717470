"""One module per family: a function from a `Config` to a `Decoder`, with the names of its
tensors in files.
"""
