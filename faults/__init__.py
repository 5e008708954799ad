"""What goes wrong in a real federation, done on purpose: ``make faults``."""
