"""All runs of a table or figure from one file."""
