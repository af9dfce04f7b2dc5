"""What `brinell compare` is asked for."""

from brinell.engine.request import BaseRequest, Folder


class CompareRequest(BaseRequest):
    """What `brinell compare` is asked for."""

    a: Folder
    """The first run."""
    b: Folder | None = None
    """The second run. Default: none, two models of the first are compared."""
    model_a: str | None = None
    """The model of the first run, where it has several."""
    model_b: str | None = None
    """The model of the second run, where it has several."""
