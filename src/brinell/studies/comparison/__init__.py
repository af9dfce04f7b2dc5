"""Compare two models sample by sample: differences with intervals, and McNemar's exact test."""

from brinell.studies.comparison.request import CompareRequest
from brinell.studies.kit import Output, Study

STUDY = Study(
    package=__name__,
    verb="compare",
    request=CompareRequest,
    run="run:carry_out",
    result="brinell.analysis.results:CompareResult",
    lines="terminal:lines",
    positional=("a", "b"),
    output=Output.ANSWER_ONLY,
    examples=("brinell compare RUN_A RUN_B", "brinell compare RUN --model-a plain --model-b robust"),
)
