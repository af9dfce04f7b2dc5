"""Coverage of the intervals and error rates of the sentences of all studies, by simulation where the truth is known.

    OMP_NUM_THREADS=1 python -m benchmarks.inference --repetitions 4000

Prints two tables in Markdown: how often a 95 % interval holds the truth, and how often a sentence claims something where there
is nothing. `tests/analysis/test_simulations.py` holds both to their limits with fewer repetitions.
"""

LIMITS = 93.0, 97.0
"""Coverage that is allowed, in percent, averaged over the cases of a row."""
MOST_ERRORS = 6.0
"""False claims that are allowed, in percent."""
