"""Models for pages that compute: programs and weights for the engine in WebAssembly."""
