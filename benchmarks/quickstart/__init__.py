"""Baseline (c): a Flower app as Flower's PyTorch quickstart writes it."""
