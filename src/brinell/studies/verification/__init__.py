"""Recompute the claims of a run: rows, classes, adversarial inputs, costs, checks, tables, and some of its robust samples.

If the run was made elsewhere, its models and data are not opened unless you name or trust them. Only its files are checked.
"""

from brinell.studies.kit import Output, Study
from brinell.studies.verification.request import VerifyRequest

STUDY = Study(
    package=__name__,
    verb="verify",
    request=VerifyRequest,
    run="run:carry_out",
    result="result:VerifyResult",
    positional=("run",),
    data_of="run:data_of",
    output=Output.ANSWER_ONLY,
    examples=("brinell verify RUN", "brinell verify RUN --signed-by signers"),
)
