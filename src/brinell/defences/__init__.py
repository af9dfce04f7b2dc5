"""Ways to train a classifier that holds: one file each; what its neighbours share has a leading underscore."""
