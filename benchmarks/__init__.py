"""Speed of the suite against plain PyTorch and plain Flower: ``python -m benchmarks.speed``."""
