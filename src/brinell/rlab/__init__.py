"""The agent of RLAB: its environment, its policies, the algorithms that train them, and what
follows an episode.
"""
