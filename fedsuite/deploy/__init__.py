"""Real deployment: certificates, keys, connections, and a local federation of real processes."""
