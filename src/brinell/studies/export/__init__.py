"""`brinell export`: a finished run for the tools that people keep their experiments in."""
