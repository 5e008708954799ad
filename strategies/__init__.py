"""Server side: one file per algorithm, each a Flower Strategy."""
