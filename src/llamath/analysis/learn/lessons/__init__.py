"""The lessons: what each explains and asks about a model."""
