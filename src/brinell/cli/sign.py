"""`brinell sign`: sign a run with an SSH key."""

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from brinell.cli.options import Json, RunFolder, answer, show


def sign(
    run: RunFolder,
    key: Annotated[Path, typer.Option(help="The file of an Ed25519 private key, as ssh-keygen -t ed25519 writes it.")],
    json: Json = False,
) -> int:
    """Sign a finished run with an SSH key, so that `brinell verify --signed-by` can tell who answers for it.

    The manifest is signed, which holds the hashes of records and arrays. Needs the extra sign.
    """
    from brinell.cli.schemas import SignAnswer
    from brinell.store import signature

    ask = (lambda: getpass.getpass(f"passphrase of {key}: ")) if sys.stdin.isatty() else lambda: None
    signed = signature.sign(run, key, ask)
    file = run / signature.SIGNATURE
    return answer(json, SignAnswer(run=str(run), signature=str(file), key=signed.fingerprint), lambda: show(str(file)))
