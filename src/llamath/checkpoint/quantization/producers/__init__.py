"""One module for each producer of quantizations: which modules it quantizes, the tensors that it
stores, how they are recognized, and their values.
"""
