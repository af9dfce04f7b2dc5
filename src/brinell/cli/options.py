"""Options that several commands share, and the output of a command line."""

import json
import os
import sys
from dataclasses import dataclass
from typing import Annotated

import typer
from pydantic import BaseModel

from brinell.core.outward import printable

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the answer, warnings and errors, and nothing else.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Name every stage, those with nothing to do too; show the trace of a failure.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else there.")]
ON = "Let workers on Ray do the work: ray (on this machine) or ray:ADDRESS (a cluster); with --device cuda each has a GPU."
TRUST = "A folder you trust: Brinell may load the files and run the code that it refers to. A parent folder works too."


@dataclass
class Loudness:
    """Amount of messages that a command prints."""

    quiet: bool = False
    verbose: bool = False


LOUDNESS = Loudness()
"""Loudness of the running command; `brinell.cli.run` resets it for each command."""


def show_json(result: BaseModel) -> None:
    """A result on standard output, as one JSON object."""
    payload = getattr(result, "payload", None)
    content = payload() if callable(payload) else result.model_dump(mode="json", by_alias=True)
    show(json.dumps(content, ensure_ascii=False, allow_nan=False))


def show(text: str = "") -> None:
    """A line of the answer on standard output."""
    try:
        sys.stdout.write(printable(text) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader went away; nothing is left to say to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str) -> None:
    """One line on standard error."""
    print(f"brinell: {printable(' '.join(text.split()))}", file=sys.stderr, flush=True)  # noqa: T201
