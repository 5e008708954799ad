"""Ways to execute a run: in this process, on Ray, on real nodes."""
