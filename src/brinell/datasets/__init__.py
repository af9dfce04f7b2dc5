"""Labelled inputs, read on demand. One module is one data set format."""
