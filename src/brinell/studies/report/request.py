"""What `brinell report` is asked for."""

from brinell.engine.request import BaseRequest, Folder


class ReportRequest(BaseRequest):
    """What `brinell report` is asked for."""

    run: Folder
    """The folder of an audit, or of any study that has a page."""
