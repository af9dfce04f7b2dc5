"""The options that verbs share, in the same words."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from brinell.core.outward import JOINER, printable

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the answer, warnings and errors, and nothing else.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Name every stage, those with nothing to do too; show the trace of a failure.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else there.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, made by brinell audit.")]
ShardText = Annotated[
    str | None,
    typer.Option(
        metavar="K/N",
        help="Work on the run together with other processes that are given the same options and the same --out, a folder that "
        "all see or an address such as s3://BUCKET/RUN: begin with shard K of N, and help with the rest.",
    ),
]
TRUST = "A folder from elsewhere whose files, addresses and code may be used as it names them; one above it will do."


@dataclass
class Loudness:
    """How much of what goes on a command line wants to be told."""

    quiet: bool = False
    verbose: bool = False


LOUDNESS = Loudness()
"""That of the command that runs; `brinell.cli.run` begins each with the default."""


def answer(as_json: bool, result: BaseModel, in_words: Callable[[], None], *, passed: bool = True) -> int:
    """Print a result, as one JSON object or in words. Returns the exit code, 1 where a test was not passed."""
    if as_json:
        show(json.dumps(result.model_dump(mode="json", by_alias=True), ensure_ascii=False, allow_nan=False))
    else:
        in_words()
    return 0 if passed else 1


def show(text: str = "") -> None:
    """A line of the answer on standard output."""
    try:
        sys.stdout.write(printable(text) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader went away; nothing is left to say to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show_reading(sentences: Sequence[str], notes: Sequence[str] = ()) -> None:
    """What figures mean in plain words, as on the page, and what else a reader should know."""
    for sentence in sentences:
        show(f"  {sentence.replace(JOINER, '')}")
    for note in notes:
        show(f"  note: {note}")


def say(text: str) -> None:
    """One line on standard error."""
    print(f"brinell: {printable(' '.join(text.split()))}", file=sys.stderr, flush=True)  # noqa: T201


def tell(text: str) -> None:
    """The same about what goes on, which --quiet leaves out."""
    if not LOUDNESS.quiet:
        say(text)


def say_how_many(plan: Any) -> None:
    """Say which samples a plan takes, where it takes fewer than there are and nobody asked how many or which."""
    if (plan.request.samples is None or plan.request.select is None) and plan.selection.how != "all":
        more = "; --samples asks for more" if plan.request.samples is None else ""
        tell(f"{plan.selection.text(len(plan.dataset))}{more}")


def flags_of(shard: str | None) -> tuple[str, ...]:
    """The option --shard, as it was given."""
    return () if shard is None else ("--shard", shard)


def percent(value: float | None) -> str:
    """A rate as people read it; a dash where there is none."""
    return "-" if value is None else f"{100 * value:.1f} %"
