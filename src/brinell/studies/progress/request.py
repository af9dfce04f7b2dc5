"""What `brinell progress` is asked for."""

from brinell.engine.request import BaseRequest, Folder


class ProgressRequest(BaseRequest):
    """What `brinell progress` is asked for."""

    run: Folder
    """A run folder, or an address such as s3://BUCKET/RUN."""
