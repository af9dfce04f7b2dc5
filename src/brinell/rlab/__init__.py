"""Agents that learn to pick: the algorithms, and what they know of environments and networks."""
