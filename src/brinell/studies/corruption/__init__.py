"""`brinell corrupt`: what the published corruptions cost models, and what placing them costs beside that."""
