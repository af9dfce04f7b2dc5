"""Queue a run as an array of SLURM jobs, and wait for them: python examples/scale/on_slurm.py 16 audit run.toml --out FOLDER.

With CLUSTER=local in the environment the jobs are processes on this machine.
"""

import os
import sys

from brinell.runners import slurm

if __name__ == "__main__":
    number, *words = sys.argv[1:]
    jobs = slurm.submit(words, int(number), cluster=os.environ.get("CLUSTER"), timeout_min=240)
    print(f"{len(jobs)} jobs: {', '.join(job.job_id for job in jobs)}")
    for job in jobs:
        job.result()
