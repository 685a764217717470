"""The native CPU engine: a recorded model is lowered to a flat program, which a C++ library runs
without Python between layers.
"""
