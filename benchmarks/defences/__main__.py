"""`python -m benchmarks.defences`: see `run.py`."""

from benchmarks.defences.run import main

main()
