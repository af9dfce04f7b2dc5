"""`brinell train-metric`: a distance learned from the data."""
