"""Distort correctly classified inputs until the model misclassifies them, and store them at graded severities as a data set.

The datasets library loads the folder. Evaluate other models on it with --data bench:FOLDER.
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
    rewrite="run:rewrite",
    without_page="has a card instead of a page: read README.md in the folder",
    needs_inputs=True,
    resume="Resume the set in --out.",
    truth=True,
    halves=True,
    examples=(
        "brinell benchmark --data FILE.npz --model model.py:factory --out SET",
        "brinell benchmark --data 'masks:FOLDER?side=257' --model model.py:segmentation --criterion pixels:0.5 --out SET",
    ),
)
