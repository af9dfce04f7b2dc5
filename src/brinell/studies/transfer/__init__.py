"""`brinell transfer`: what the adversarial examples of one model do to others."""
