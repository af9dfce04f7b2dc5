"""Attacks: one file each, reading like its paper. None imports another."""
