"""A plain Flower app for real SuperNodes: Flower's FedAvg, clients train and evaluate."""
