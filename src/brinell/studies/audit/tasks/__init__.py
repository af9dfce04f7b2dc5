"""The audit of a model that answers more than a class: the class of each pixel, by masks, or the
boxes of objects.
"""
