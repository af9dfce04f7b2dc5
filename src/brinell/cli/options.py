"""Options that several commands share, and the output of a command line."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from brinell.core.outward import printable

Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object on standard output and nothing else there."),
]


@dataclass
class Root:
    """The options before the verb, which hold for every command."""

    quiet: bool = False
    verbose: bool = False
    trust: Path | None = None
    on: str | None = None

    def reset(self) -> None:
        """Take back the options of an earlier command in the same process."""
        self.quiet = False
        self.verbose = False
        self.trust = None
        self.on = None


ROOT = Root()
"""Those of the running command; `brinell.cli.run` resets them for each command."""


def verb_of(arguments: Sequence[str]) -> str:
    """The first word other than an option of the root; empty for none."""
    words = iter(arguments)
    for word in words:
        if word in ("--trust", "--on"):
            next(words, None)
        elif not word.startswith("-"):
            return word
    return ""


def show_json(result: BaseModel) -> None:
    """A result on standard output, as one JSON object."""
    payload = getattr(result, "payload", None)
    content = payload() if callable(payload) else result.model_dump(mode="json", by_alias=True)
    show(json.dumps(content, ensure_ascii=False, allow_nan=False))


def show(text: str = "") -> None:
    """A line of the answer on standard output."""
    show_escaped(printable(text))


def show_escaped(text: str) -> None:
    """A line of the answer that acts on a terminal by our styles alone."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader went away; nothing is left to say to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def terminal_colors() -> Any:
    """The colours of standard output, as rich names them; None elsewhere."""
    from rich.console import Console

    return Console(file=sys.stdout).color_system


def say(text: str) -> None:
    """One line on standard error."""
    print(f"brinell: {printable(' '.join(text.split()))}", file=sys.stderr, flush=True)  # noqa: T201
