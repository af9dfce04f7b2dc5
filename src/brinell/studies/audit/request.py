"""How `brinell audit` is carried out; what it is asked for is `engine.request.Request`."""

from pydantic import Field

from brinell.engine.request import BaseRequest

CALIBRATION = 20.0
"""Seconds of a calibration where nobody said."""


class AuditOptions(BaseRequest):
    """Options that change nothing in the rows, and that no folder keeps."""

    dry_run: bool = False
    """Show the plan, its passes and, from a short calibration, its time and memory; keep nothing."""
    calibrate: float | None = Field(default=None, ge=0)
    """The seconds that the calibration of a dry run may take; 0 makes none. Default: 20."""
    certify: bool = False
    """Also prove robustness of what the attacks leave, by CROWN and alpha-CROWN, into the folder certify of the run. Page and
    JSON show both bounds."""
    gate: tuple[str, ...] = ()
    """A condition of brinell gate on the run, such as robust=0.4, worst-class=0.2, clean=0.9 or certified=0.2, at its largest
    budget. The command ends with exit code 1 where one does not hold."""
