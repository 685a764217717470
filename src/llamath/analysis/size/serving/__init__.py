"""What inference engines do with a model: will it start, which cache does it get, where does
each weight go.
"""
