"""Use the models of a run: load, preprocess, predict, export."""
