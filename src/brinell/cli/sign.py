"""`brinell sign`: sign a run with an SSH key."""

from pathlib import Path
from typing import Annotated

import typer

from brinell.cli.options import Json, RunFolder, answer, show


def sign(
    run: RunFolder,
    key: Annotated[Path, typer.Option(help="The file of an SSH private key, or the public key of one that ssh-agent holds.")],
    json: Json = False,
) -> int:
    """Sign a finished run with an SSH key, so that `brinell verify --signed-by` can tell who answers for it.

    The manifest is signed, which holds the hashes of records and arrays. Needs ssh-keygen, of OpenSSH 8.9 or newer.
    """
    from brinell.cli.schemas import SignAnswer
    from brinell.store import signature

    signed = signature.sign(run, key)
    file = run / signature.SIGNATURE
    return answer(json, SignAnswer(run=str(run), signature=str(file), key=signed.fingerprint), lambda: show(str(file)))
