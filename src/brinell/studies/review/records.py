"""A review: pairs of pictures that people are shown, and what they answered (design/0015-review.md).

manifest.json        what was asked for, and every trial: sample, class, size of the change
pairs.safetensors    clean and changed, uint8 (n, H, W, C) as they are shown
answers.jsonl        one line per answer, on disk before the next pair is shown; each ends with a hash of it and all before
report.html          what they say; made from the files above
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import model_validator

from brinell.core import bounded
from brinell.core.errors import RequestError, StoppedError, one_line, option
from brinell.core.record import Array
from brinell.manifest import Amount, Content, Count, Listing, Manifest, fault, misfit
from brinell.store.files import read_arrays, write_arrays
from brinell.store.folder import Layout

DIGEST = "digest"


class ReviewSettings(Content):
    """What the figures need of the request."""

    data: str
    """The data."""
    norm: Literal["linf", "l2"]
    """The distance in which changes are measured."""
    change: str
    """How pictures are changed."""


class Trial(Content):
    """One pair, in the order in which it is shown."""

    number: Count
    """Its number, from 0."""
    sample_id: Count
    """The position of the sample in the data."""
    label: Count
    """The class of the clean picture."""
    eps: Amount
    """The size of the change in the norm of the review; 0 where both pictures are the same (a catch trial)."""
    changed_left: bool
    """Whether the changed picture stands on the left."""


class ReviewManifest(Manifest):
    """What the manifest of a review says."""

    request: ReviewSettings
    """Every setting that was asked for."""
    classes: Listing[str]
    """The names of the classes."""
    trials: Listing[Trial]
    """Every pair."""

    @model_validator(mode="after")
    def _fits(self) -> "ReviewManifest":
        if [trial.number for trial in self.trials] != list(range(len(self.trials))):
            raise misfit("does not number its trials one after another")
        if any(trial.label >= len(self.classes) for trial in self.trials):
            raise misfit("has a trial of a class that there is not")
        return self


class Answer(Content):
    """What one person said to one trial: a line of answers.jsonl, which has its hash under DIGEST besides."""

    trial: Count
    """The number of the pair."""
    reviewer: str
    """Whose answer it is, as they call themselves; may be empty."""
    differs: bool
    """Whether they saw a difference."""
    named: Count | None
    """The class that they took the changed picture for; null for none of these."""
    seconds: Amount
    """From seeing the pair to the answer."""


LAYOUT = Layout(verb="review", what="review", version=1, manifest=ReviewManifest)
ANSWERS = "answers.jsonl"


@dataclass(frozen=True, kw_only=True)
class Review:
    """A review folder."""

    path: Path
    request: Mapping[str, Any]
    """Data, norm, budgets, kind of change, seed."""
    classes: tuple[str, ...]
    trials: tuple[Trial, ...]

    @classmethod
    def make(
        cls, path: Path, request: Mapping[str, Any], classes: Sequence[str], trials: Sequence[Trial], pairs: Mapping[str, Array]
    ) -> "Review":
        """Write a new review.

        Args:
            path: its folder.
            request: what was asked for, ready for JSON.
            classes: names of the classes.
            trials: (n,) trials.
            pairs: `clean` and `changed`, uint8 (n, H, W, C), row by row as the trials.

        Raises:
            StoppedError: the folder cannot be written.
        """
        write_arrays(path / "pairs.safetensors", pairs)
        told = {"request": dict(request), "classes": list(classes), "trials": [trial.model_dump() for trial in trials]}
        LAYOUT.save(path, told)
        return cls(path=path, request=request, classes=tuple(classes), trials=tuple(trials))

    @classmethod
    def open(cls, path: Path | str) -> "Review":
        """The review in a folder.

        Raises:
            RequestError: none there, or a damaged file.
        """
        path = Path(path)
        told = LAYOUT.open(path)
        trials = tuple(Trial(**trial) for trial in told["trials"])
        return cls(path=path, request=told["request"], classes=tuple(told["classes"]), trials=trials)

    def pairs(self) -> tuple[Array, Array]:
        """Clean and changed pictures, uint8 (n, H, W, C).

        Raises:
            RequestError: the file is missing or damaged.
        """
        arrays = read_arrays(self.path / "pairs.safetensors")
        return arrays["clean"], arrays["changed"]

    def answers(self) -> list[Answer]:
        """All answers so far; a last line that was cut by a kill is left out.

        Raises:
            RequestError: a line is damaged, or one before it was changed, added or taken out.
        """
        return self._read()[0]

    def _read(self) -> tuple[list[Answer], str, int]:
        """All answers, the hash of the last one, and how many bytes of the file they take."""
        file, answers, last, size = self.path / ANSWERS, list[Answer](), "", 0
        try:
            content = bounded.read(file, bounded.MOST_TEXT)
        except FileNotFoundError:
            return answers, last, size
        except OSError as error:
            raise RequestError(f"{file} cannot be read: {one_line(error)}") from None
        *lines, rest = content.split(b"\n")
        for number, line in enumerate(lines, 1):
            where = f"{file}, line {number},"
            told = _parsed(line)
            if why := "it is no JSON" if told is None else fault(told, Answer):
                raise RequestError(f"{where} is damaged: {why}; take the file from a copy of the folder")
            found = told.pop(DIGEST, None)
            if found is not None or last:  # reviews begun before there was a hash have lines without it, first of all
                last = _digest(last, told)
            if found != (last or None):
                raise RequestError(
                    f"{where} is damaged, or lines before it were changed: its digest is not its own; take the file from a copy"
                )
            if told["trial"] >= len(self.trials) or set(told) != set(Answer.model_fields):
                raise RequestError(f"{where} is damaged: it answers no trial of this review; take the file from a copy")
            answers.append(Answer(**told))
            size += len(line) + 1
        if _parsed(rest[:-1]) is not None:
            raise RequestError(
                f"{file}, line {len(lines) + 1}, is damaged: it is whole and its end is not; take the file from a copy"
            )
        return answers, last, size

    def add(self, answer: Answer) -> None:
        """Append an answer and have it on disk.

        Raises:
            RequestError: the answers before it are damaged.
            StoppedError: it cannot be written.
        """
        file = self.path / ANSWERS
        try:
            _, last, size = self._read()
            told = answer.model_dump()
            with file.open("r+b" if file.exists() else "xb") as out:
                out.truncate(size)
                out.seek(0, os.SEEK_END)
                out.write((json.dumps(told | {DIGEST: _digest(last, told)}, ensure_ascii=False) + "\n").encode())
                out.flush()
                os.fsync(out.fileno())
        except OSError as error:
            reason = error.strerror or error
            raise StoppedError(f"{file} cannot be written ({reason}): mend that, then go on with {option('resume')}") from error

    def answered(self, answers: Sequence[Answer]) -> list[Trial]:
        """The trial of each answer."""
        trials = {trial.number: trial for trial in self.trials}
        return [trials[answer.trial] for answer in answers]

    def open_trials(self, reviewer: str) -> list[Trial]:
        """What this person has not answered yet, in order."""
        done = {answer.trial for answer in self.answers() if answer.reviewer == reviewer}
        return [trial for trial in self.trials if trial.number not in done]


def _parsed(line: bytes) -> Any:
    """What a line of JSON says; None where it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _digest(before: str, told: Mapping[str, Any]) -> str:
    """The hash of an answer and of the hash before it (BLAKE2b, 128 bits, hex)."""
    text = json.dumps([before, told], sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
