"""The settings of `brinell verify`."""

from pydantic import Field

from brinell.engine.request import BaseRequest, DataSpec, File, Folder, ModelSpec


class VerifyRequest(BaseRequest):
    """The settings of `brinell verify`."""

    run: Folder
    """A run folder that brinell audit made, or the folder or the file of another study."""
    model: tuple[ModelSpec, ...] = ()
    """The model to use instead of the one that RUN names, written as for audit."""
    data: DataSpec | None = None
    """The data to use instead of those that RUN names, written as for audit."""
    digest: tuple[str, ...] = ()
    """A digest of the data or of a model that you know from elsewhere. Without it, and without --model and --data, they are the
    claim of whoever made RUN."""
    replay: int | None = Field(default=None, ge=0)
    """Samples of each model to compute again from the start. Default: 8, or 5 % if that is more."""
    signed_by: File | None = None
    """A file of allowed signers, or of public SSH keys: a run that none of them has signed is refused."""
