"""Text generation on any engine: sampling parameters, limits, sessions, conversations, and
mapped weight files. No torch is needed.
"""
