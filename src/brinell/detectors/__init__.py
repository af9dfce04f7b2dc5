"""One file for each detector: detectors learn from clean inputs alone and say how changed another
input looks.
"""
