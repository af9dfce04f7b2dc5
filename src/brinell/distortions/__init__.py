"""One file for each distortion.

A distortion changes a whole input; which patches of it are used is decided elsewhere.
"""
