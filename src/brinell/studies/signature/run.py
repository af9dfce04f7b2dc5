"""A run signed with an SSH key."""

from collections.abc import Iterator
from pathlib import Path

from brinell.analysis.folder_result import Result
from brinell.store import signature
from brinell.store.folder import SIGNATURE
from brinell.studies.kit import Call


class SignResult(Result):
    """What `brinell sign --json` prints."""

    run: str
    """The run folder."""
    signature: str
    """The file of the signature."""
    key: str
    """SHA-256 of the public key, as ssh-keygen shows it."""


def carry_out(call: Call) -> SignResult:
    """Sign the run that a call names.

    Raises:
        RequestError: no finished run, files that were changed, or no key that can sign.
    """
    folder = Path(call.request.run)
    signed = signature.sign(folder, Path(call.request.key).expanduser())
    return SignResult(run=str(folder), signature=str(folder / SIGNATURE), key=signed.fingerprint)


def lines(result: SignResult) -> Iterator[str]:
    """The file of the signature."""
    yield result.signature
