"""The store on disk: immutable content-addressed parts, and numbered versions that are published all at once."""
