"""What is learned: datasets, how they are split among clients, and models."""
