"""One reader a format, all giving the same thing: batches of labelled triples."""
