"""The studies of RLAB, and what only they use: PPO, tree search, random searches over
patches. See `__main__.py`.
"""
