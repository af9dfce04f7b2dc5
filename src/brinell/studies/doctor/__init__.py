"""Show versions, devices, threads and disk, and which extras are there.

It attacks nothing and downloads nothing. The exit code is 1 if a package that Brinell needs is
missing or too old.
"""

from brinell.engine.request import BaseRequest
from brinell.studies.kit import Output, Study


class DoctorRequest(BaseRequest):
    """What `brinell doctor` is asked for: nothing."""


STUDY = Study(
    verb="doctor",
    request=DoctorRequest,
    result="run:DoctorResult",
    output=Output.ANSWER_ONLY,
    examples=("brinell doctor", "brinell doctor --json"),
)
