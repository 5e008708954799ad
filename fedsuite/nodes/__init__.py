"""Who computes: simulated workers, deployed nodes, a node's own data and privacy."""
