"""Classifiers under test. One module is one way to get at them; a model plugin is called with the domain of the data."""
