"""Checkpoints that torch.save wrote: their zip archives, and the pickles in them, read without
executing anything.
"""
