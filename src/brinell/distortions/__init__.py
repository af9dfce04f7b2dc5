"""Distortions, one file each. A filter changes a whole input; which patches of it are used is decided elsewhere."""
