"""The page: one or two models as exact data and small forms, and the file or server that shows
them.
"""
