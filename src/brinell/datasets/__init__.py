"""Labelled inputs, read on demand. Each module is one data set format."""
