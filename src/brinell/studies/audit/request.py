"""How `brinell audit` is carried out; what it is asked for is `engine.request.Request`."""

from pydantic import Field

from brinell.engine.request import BaseRequest, File

CALIBRATION = 20.0
"""Seconds of a calibration where nobody said."""


class AuditOptions(BaseRequest):
    """Options that change nothing in the rows, and that no folder keeps."""

    dry_run: bool = False
    """Show the plan, its passes and, from a short calibration, its time and memory, with shard 1/N those of N processes; keep
    nothing."""
    calibrate: float | None = Field(default=None, ge=0)
    """The seconds that the calibration of a dry run may take; 0 makes none. Default: 20."""
    certify: bool = False
    """Also prove robustness of what the attacks leave, by CROWN and alpha-CROWN, into the folder certify of the run. Page and
    JSON show both bounds."""
    metrics: File | None = None
    """Keep the progress of this process in a file that Prometheus' node exporter reads, such as FILE.prom."""
