"""Client side: one file per algorithm, each a Flower NumPyClient."""
