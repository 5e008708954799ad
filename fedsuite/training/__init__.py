"""One run: the loop over rounds, and trackers."""
