"""`brinell harden`: a model trained adversarially, and the audits before and after."""
