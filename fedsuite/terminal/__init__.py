"""Runs in the terminal: progress, results, plots."""
