"""A review: pairs of pictures that people are shown, and their answers (design/0015-review.md).

manifest.json        the request, and every trial: sample, class, size of the change
pairs.safetensors    clean and changed pictures, uint8 (n, H, W, C)
answers.jsonl        a line for each answer, on disk before the next pair is shown, with a hash of it and all lines before
report.html          the results, computed from the files above
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
from brinell.core.user_files import user_path
from brinell.manifest import Amount, Content, Count, Listing, Manifest, fault, misfit
from brinell.store.files import read_arrays, write_arrays
from brinell.store.folder import Layout

DIGEST = "digest"


class ReviewSettings(Content):
    """Settings that the figures depend on."""

    data: str
    """The data."""
    norm: Literal["linf", "l2"]
    """The norm of the changes."""
    change: str
    """The kind of change."""


class Trial(Content):
    """A pair, in the order of presentation."""

    number: Count
    """The number of the pair, from 0."""
    sample_id: Count
    """The position of the sample in the data."""
    label: Count
    """The class of the clean picture."""
    eps: Amount
    """The size of the change in the norm of the review; 0 if both pictures are equal (a catch trial)."""
    changed_left: bool
    """True if the changed picture is on the left."""


class ReviewManifest(Manifest):
    """The manifest of a review."""

    request: ReviewSettings
    """All settings of the request."""
    classes: Listing[str]
    """The names of the classes."""
    trials: Listing[Trial]
    """All pairs."""

    @model_validator(mode="after")
    def _check_trials(self) -> "ReviewManifest":
        """Check that trials are numbered in order and have known classes."""
        if [trial.number for trial in self.trials] != list(range(len(self.trials))):
            raise misfit("does not number its trials from 0 on")
        if any(trial.label >= len(self.classes) for trial in self.trials):
            raise misfit("has a trial with a class that does not exist")
        return self


class Answer(Content):
    """A person's answer to a trial: a line of answers.jsonl, without its hash under DIGEST."""

    trial: Count
    """The number of the pair."""
    reviewer: str
    """The name of the person; may be empty."""
    differs: bool
    """True if the person noticed a difference."""
    named: Count | None
    """The class that the person saw in the changed picture; null for none of these."""
    seconds: Amount
    """The time from seeing the pair to the answer, in seconds."""


ANSWERS = "answers.jsonl"
LAYOUT = Layout(verb="review", noun="review", version=1, manifest=ReviewManifest, derived=(ANSWERS,))


@dataclass(frozen=True, kw_only=True)
class Review:
    """A review folder."""

    path: Path
    request: Mapping[str, Any]
    """Settings of the request: data, norm, budgets, kind of change, seed."""
    classes: tuple[str, ...]
    trials: tuple[Trial, ...]

    @classmethod
    def make(
        cls,
        path: Path,
        request: Mapping[str, Any],
        classes: Sequence[str],
        trials: Sequence[Trial],
        pairs: Mapping[str, Array],
        mark: str | None = None,
    ) -> "Review":
        """Write a new review.

        Args:
            path: its folder.
            request: the settings, ready for JSON.
            classes: names of the classes.
            trials: the trials in order.
            pairs: `clean` and `changed`, uint8 (n, H, W, C), in the order of the trials.
            mark: the mark of whoever makes it (`engine.trust`).

        Raises:
            StoppedError: the folder cannot be written.
        """
        write_arrays(path / "pairs.safetensors", pairs)
        manifest = {
            "request": dict(request),
            "made_here": mark,
            "classes": list(classes),
            "trials": [trial.model_dump() for trial in trials],
        }
        LAYOUT.save(path, manifest)
        return cls(path=path, request=request, classes=tuple(classes), trials=tuple(trials))

    @classmethod
    def open(cls, path: Path | str) -> "Review":
        """Open the review in a folder.

        Raises:
            RequestError: the folder holds no review, or a damaged file.
        """
        path = user_path(path)
        manifest = LAYOUT.open(path)
        trials = tuple(Trial(**trial) for trial in manifest["trials"])
        return cls(path=path, request=manifest["request"], classes=tuple(manifest["classes"]), trials=trials)

    def pairs(self) -> tuple[Array, Array]:
        """Clean and changed pictures, uint8 (n, H, W, C).

        Raises:
            RequestError: the file is missing or damaged.
        """
        arrays = read_arrays(self.path / "pairs.safetensors")
        return arrays["clean"], arrays["changed"]

    def answers(self) -> list[Answer]:
        """All answers so far. A last line that a kill cut off is left out.

        Raises:
            RequestError: a line is damaged, or an earlier line was changed, added or removed.
        """
        return self._read()[0]

    def _read(self) -> tuple[list[Answer], str, int]:
        """All answers, the hash of the last one ("" without answers), and the bytes of the file that they fill."""
        file, answers, last_digest, size = self.path / ANSWERS, list[Answer](), "", 0
        try:
            content = bounded.read(file, bounded.MOST_TEXT)
        except FileNotFoundError:
            return answers, last_digest, size
        except OSError as error:
            raise RequestError(f"{file} cannot be read: {one_line(error)}") from None
        *lines, tail = content.split(b"\n")
        for number, line in enumerate(lines, 1):
            location = f"{file}, line {number},"
            fields = _parse_json(line)
            if reason := "it is not valid JSON" if fields is None else fault(fields, Answer):
                raise RequestError(f"{location} is damaged: {reason}; take the file from a copy of the folder")
            digest = fields.pop(DIGEST, None)
            if digest is not None or last_digest:  # reviews of earlier versions begin with lines without a hash
                last_digest = _digest(last_digest, fields)
            if digest != (last_digest or None):
                raise RequestError(
                    f"{location} is damaged: it or a line before it does not match its digest; take the file from a copy"
                )
            if fields["trial"] >= len(self.trials) or set(fields) != set(Answer.model_fields):
                raise RequestError(f"{location} is damaged: it does not answer a trial of this review; take the file from a copy")
            answers.append(Answer(**fields))
            size += len(line) + 1
        if _parse_json(tail[:-1]) is not None:
            raise RequestError(f"{file}, line {len(lines) + 1}, is damaged at its end; take the file from a copy")
        return answers, last_digest, size

    def add(self, answer: Answer) -> None:
        """Append an answer, and return once it is on disk.

        Raises:
            RequestError: the answers before it are damaged.
            StoppedError: it cannot be written.
        """
        file = self.path / ANSWERS
        try:
            _, last, size = self._read()
            content = answer.model_dump()
            with file.open("r+b" if file.exists() else "xb") as out:
                out.truncate(size)
                out.seek(0, os.SEEK_END)
                out.write((json.dumps(content | {DIGEST: _digest(last, content)}, ensure_ascii=False) + "\n").encode())
                out.flush()
                os.fsync(out.fileno())
        except OSError as error:
            reason = error.strerror or error
            raise StoppedError(
                f"{file} cannot be written ({reason}): correct this, then continue with {option('resume')}"
            ) from error

    def trials_of(self, answers: Sequence[Answer]) -> list[Trial]:
        """The trial of each answer."""
        trials = {trial.number: trial for trial in self.trials}
        return [trials[answer.trial] for answer in answers]

    def open_trials(self, reviewer: str) -> list[Trial]:
        """Trials that a person has not answered yet, in order."""
        numbers = {answer.trial for answer in self.answers() if answer.reviewer == reviewer}
        return [trial for trial in self.trials if trial.number not in numbers]


def _parse_json(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _digest(previous: str, content: Mapping[str, Any]) -> str:
    """Hash of an answer and of the hash before it (BLAKE2b, 128 bits, hex)."""
    text = json.dumps([previous, content], sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
