"""`brinell benchmark`: the adversarial benchmark set of a model."""
