"""The studies of RLAB, and what only they use: PPO and A2C, tree search, random searches over
patches. See `__main__.py`.
"""
