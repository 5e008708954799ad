"""What ``import fedsuite`` offers, and the commands are made of: runs, suites, comparisons."""
