"""Classifiers under test.

Each module is one way to open a model; a model plugin is called with the domain of the data.
"""
