"""Random settings and odd datasets, to see what the suite does with them: ``make fuzz``."""
