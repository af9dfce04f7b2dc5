"""What `brinell sign` is asked for."""

from brinell.engine.request import BaseRequest, File, Folder


class SignRequest(BaseRequest):
    """What `brinell sign` is asked for."""

    run: Folder
    """A finished run folder."""
    key: File
    """The file of an SSH private key, or the public key of one that ssh-agent holds."""
