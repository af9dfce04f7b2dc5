"""Execution of a plan: in this process, in shards, on SLURM or on Ray."""
