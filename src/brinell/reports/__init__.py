"""A report as a value, and its renderers: page, terminal, CSV, Markdown, notebook (DESIGN section
4).
"""
