"""The data model: exact dimensions, weights, blocks and configurations."""
