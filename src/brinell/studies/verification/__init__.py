"""Recompute the claims of a run: rows, classes, adversarial inputs, costs, checks, tables, and
some of its robust samples.

If the run was made elsewhere, its models and data are not opened unless you name or trust them.
Only its files are checked.
"""

from pydantic import Field

from brinell.engine.request import BaseRequest, DataSpec, File, Folder, ModelSpec
from brinell.studies.kit import Output, Study


class VerifyRequest(BaseRequest):
    """The settings of `brinell verify`."""

    run: Folder
    """A run folder that brinell audit made, or the folder of another study."""
    model: tuple[ModelSpec, ...] = ()
    """The model to use instead of the one that RUN names, written as for audit."""
    data: DataSpec | None = None
    """The data to use instead of those that RUN names, written as for audit."""
    digest: tuple[str, ...] = ()
    """A digest of the data or of a model that you know from elsewhere. Without it, and without
    --model and --data, they are the claim of whoever made RUN."""
    replay: int | None = Field(default=None, ge=0)
    """Samples of each model to compute again from the start. Default: enough to find forgeries as
    wide as the interval of the figure; 100 of a random model."""
    signed_by: File | None = None
    """A file of allowed signers, or of public SSH keys: a folder that none of them has signed is
    refused."""

    field: File | None = None
    """A file that brinell export --to hub wrote of a run: refused if RUN says otherwise."""


STUDY = Study(
    verb="verify",
    keeps_region=True,
    request=VerifyRequest,
    result="result:VerifyResult",
    positional=("run",),
    output=Output.ANSWER_ONLY,
    examples=(
        "brinell verify RUN",
        "brinell verify RUN --signed-by signers",
        "brinell verify RUN --field robustness/net.json",
    ),
)
