"""The page of all methods beside one another, on the same data and under the same attacks."""
