"""A run's folder: written, read, checkpointed, summarised."""
