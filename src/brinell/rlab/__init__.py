"""Agents that learn to choice: the algorithms, and what they know of environments and networks."""
