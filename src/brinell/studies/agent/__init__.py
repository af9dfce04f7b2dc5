"""`brinell train-agent`: an RLAB agent trained on inputs and a model of one's own."""
