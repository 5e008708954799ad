"""Leaves: what every other room may import; nothing here imports a room of ours."""
