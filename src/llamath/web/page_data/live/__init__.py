"""What a page needs to run its model: program, weights and tokenizer."""
