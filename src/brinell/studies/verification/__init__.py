"""Recompute what a run claims: rows, classes, adversarial inputs, costs, checks, tables, and a part of its robust samples.

Of a run that was made elsewhere nothing is run or opened, unless it is named again or trusted; its files alone are checked.
"""

from brinell.studies.kit import Output, Study
from brinell.studies.verification.request import VerifyRequest

STUDY = Study(
    package=__name__,
    verb="verify",
    request=VerifyRequest,
    run="run:carry_out",
    result="result:VerifyResult",
    lines="terminal:lines",
    positional=("run",),
    data_of="request:data_of",
    output=Output.NOTHING,
    foreign=True,
    passes=True,
    examples=("brinell verify RUN", "brinell verify RUN --signed-by signers"),
)
