"""The transfer between models that answer more than a class: all are shown the strongest inputs of
each, and compared with an attack on themselves.
"""
