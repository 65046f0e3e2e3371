"""What all methods are made of: rows, steps, candidate classes, dual variables."""
