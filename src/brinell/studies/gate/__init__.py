"""Test the lower end of each interval against thresholds, or a run against a baseline.

A missing figure fails, and so does a check that was not made.
"""

from brinell.studies.gate.request import GateOptions, GateRequest
from brinell.studies.kit import Output, Study

STUDY = Study(
    package=__name__,
    verb="gate",
    request=GateRequest,
    options=GateOptions,
    run="run:carry_out",
    result="brinell.analysis.gate:GateResult",
    lines="terminal:lines",
    positional=("run",),
    output=Output.ANSWER_ONLY,
    examples=(
        "brinell gate RUN --robust 0.4 --worst-class 0.2 --eps 8/255",
        "brinell gate RUN --baseline EARLIER --junit gate.xml",
        "brinell gate PROOFS --certified 0.3 --eps 2/255",
    ),
)
