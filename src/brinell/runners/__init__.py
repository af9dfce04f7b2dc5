"""Where the work of a plan is done: in this process, in shards, on SLURM or Ray."""
