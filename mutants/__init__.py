"""Mutation testing: change one place of the code, and see whether a test notices."""
