"""Faults injected into a real federation, to see how a run survives them: ``make faults``."""
