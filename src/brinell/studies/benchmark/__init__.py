"""Distort what the model classifies correctly until it errs, at graded severities, and store it as a data set.

The folder loads with the datasets library; --data bench:FOLDER scores other models on it.
"""

from brinell.studies.benchmark.request import BenchmarkRequest
from brinell.studies.kit import Study

STUDY = Study(
    package=__name__,
    verb="benchmark",
    request=BenchmarkRequest,
    run="run:carry_out_call",
    result="cards:BenchmarkResult",
    lines="terminal:lines",
    open="run:open_result",
    layout="records:LAYOUT",
    without_page="has a card and no page: README.md in the folder is it",
    needs_inputs=True,
    resume="Go on with the set in --out.",
    shards=True,
    examples=("brinell benchmark --data FILE.npz --model model.py:factory --out SET",),
)
