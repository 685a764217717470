"""Text from a model: the engine that computes it, and the replies to prompts."""
