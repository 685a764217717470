"""What the files of a model hold: names, dtypes, quantizations, bytes and shards of weights."""
