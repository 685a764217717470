"""The little world of the embedded model: its words, its stories and how they are read back, its conversations, its texts."""
