"""Code that producers of quantizations share: names of modules, keys of configs, and number formats
that several of them store.
"""
