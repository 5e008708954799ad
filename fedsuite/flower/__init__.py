"""What we need of Flower: its commands, its connections, its private parts."""
