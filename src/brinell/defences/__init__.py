"""Ways to train a robust classifier: one file each; what they share has a leading underscore."""
