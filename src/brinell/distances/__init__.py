"""How far a perturbed input is from the clean one: one file for each distance."""
