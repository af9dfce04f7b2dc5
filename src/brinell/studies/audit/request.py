"""How `brinell audit` is carried out; what it is asked for is `engine.request.Request`."""

from typing import Annotated

from pydantic import Field

from brinell.core.settings import Names
from brinell.engine.request import BaseRequest, DataSpec, Folder


class AuditOptions(BaseRequest):
    """Options that change nothing in the rows, and that no folder keeps."""

    minutes: Annotated[float, Field(gt=0)] | None = None
    """Stop after so many minutes, divided among the models: what was found stands as an upper
    bound, page and exit code 3 say which stages are left, and --resume goes on. Default: no
    limit."""
    dry_run: bool = False
    """Show the plan, and the passes and the time that it takes at most; attack nothing."""
    certify: bool = False
    """Also prove robustness of what the attacks leave, by CROWN and alpha-CROWN, into the folder
    certify of the run. Page and JSON show both bounds."""
    detector: tuple[Annotated[str, Names("detector")], ...] = ()
    """A detector, background, feature-squeezing, mahalanobis or file.py:Class: also measure how
    much of the robust accuracy comes from changes that it sees, and what attacks that know it
    leave, into the folder detectors of the run."""
    detector_data: DataSpec | None = None
    """Clean data, without samples of the audit, that the detectors are fitted to."""
    fpr: float = Field(default=0.05, gt=0, lt=0.5)
    """The false-alarm rate on clean inputs, which determines the threshold of a detector."""
    epsilon: Folder | None = None
    """The folder of brinell epsilon on the same data. Page, tables and JSON show by class the
    distance to the nearest other class next to the drop; the run keeps a copy in its folder
    epsilon."""
