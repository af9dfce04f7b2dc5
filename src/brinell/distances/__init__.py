"""Distances: how far a perturbed input is from the clean one. One file each."""
