"""The data model: exact dimensions, weights, blocks, configurations and errors."""
