"""Carry out a run on Ray, on this machine or a cluster: python examples/scale/on_ray.py 16 audit run.toml --out FOLDER.

The cluster is the one that RAY_ADDRESS names; without it Ray is started on this machine and stopped after the run.
"""

import os
import sys

from brinell.runners import ray

if __name__ == "__main__":
    number, *words = sys.argv[1:]
    outcomes = ray.run(words, int(number), address=os.environ.pop("RAY_ADDRESS", None))
    sys.exit(max(outcome.code for outcome in outcomes))
