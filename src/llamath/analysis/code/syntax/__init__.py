"""The syntax of written code."""
