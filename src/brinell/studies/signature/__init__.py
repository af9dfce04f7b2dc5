"""Sign a finished run with an SSH key, so that `brinell verify --signed-by` can tell who answers for it.

The manifest is signed, which holds the hashes of records and arrays. ssh-keygen of OpenSSH does it.
"""

from brinell.engine.request import BaseRequest, File, Folder
from brinell.studies.kit import Output, Study


class SignRequest(BaseRequest):
    """What `brinell sign` is asked for."""

    run: Folder
    """A finished run folder."""
    key: File
    """The file of an SSH private key, or the public key of one that ssh-agent holds."""


STUDY = Study(
    package=__name__,
    verb="sign",
    request=SignRequest,
    run="run:carry_out",
    result="run:SignResult",
    lines="run:lines",
    positional=("run",),
    output=Output.ANSWER_ONLY,
    examples=("brinell sign RUN --key ~/.ssh/id_ed25519",),
)
