"""Detectors: they learn from clean inputs alone and say how changed another input looks."""
