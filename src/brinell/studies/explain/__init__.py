"""`brinell explain`: maps of what matters to a model, and what they are worth."""
