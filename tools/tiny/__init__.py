"""Training data of the embedded model: a small world, its stories, a parser that checks stories,
and conversations."""
