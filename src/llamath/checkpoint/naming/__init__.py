"""Names: what each weight is called, and how it lies, in the files of HF, Meta and GGUF."""
