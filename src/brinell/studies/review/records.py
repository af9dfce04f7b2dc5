"""A review: pairs of pictures that people are shown, and what they answered (design/0015-review.md).

trials.json          what was asked for, and every trial: sample, class, size of the change
pairs.safetensors    clean and changed, uint8 (n, H, W, C) as they are shown
answers.jsonl        one line per answer, on disk before the next pair is shown
review.html          what they say; made from the files above
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from brinell.core.errors import RequestError, StoppedError
from brinell.core.record import Array
from brinell.store.files import read_arrays, write_arrays
from brinell.store.folder import Layout

LAYOUT = Layout(
    what="review",
    verb="brinell epsilon DATA --review",
    version=1,
    manifest="trials.json",
    needed=("request", "classes", "trials"),
)
ANSWERS = "answers.jsonl"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One pair, in the order in which it is shown."""

    number: int
    sample_id: int
    label: int
    """Class of the clean picture."""
    eps: float
    """Size of the change in the review's norm; 0 where both pictures are the same (a catch trial)."""
    changed_left: bool
    """Whether the changed picture stands on the left."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one person said to one trial."""

    trial: int
    reviewer: str
    """Whose answer it is, as they call themselves; may be empty."""
    differs: bool
    """Whether they saw a difference."""
    named: int | None
    """Which class they took the changed picture for; None for "none of these"."""
    seconds: float
    """From seeing the pair to the answer."""


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
        told = {"request": dict(request), "classes": list(classes), "trials": [asdict(one) for one in trials]}
        LAYOUT.save(path, {LAYOUT.version_key: LAYOUT.version} | told)
        return cls(path=path, request=request, classes=tuple(classes), trials=tuple(trials))

    @classmethod
    def open(cls, path: Path | str) -> "Review":
        """The review in a folder.

        Raises:
            RequestError: none there, or a damaged file.
        """
        path = Path(path)
        told = LAYOUT.open(path)
        try:
            trials = tuple(Trial(**one) for one in told["trials"])
        except TypeError as error:
            raise RequestError(f"{path / LAYOUT.manifest} is damaged: {error}") from None
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
            RequestError: a line before the last is damaged.
        """
        file = self.path / ANSWERS
        lines = file.read_text(encoding="utf-8").split("\n") if file.exists() else []
        answers = []
        for number, line in enumerate(lines[:-1], 1):
            try:
                answers.append(Answer(**json.loads(line)))
            except (ValueError, TypeError) as error:
                raise RequestError(f"{file}, line {number}, is damaged: {error}") from None
        return answers

    def add(self, answer: Answer) -> None:
        """Append an answer and have it on disk.

        Raises:
            StoppedError: it cannot be written.
        """
        file = self.path / ANSWERS
        try:
            whole = file.read_bytes().rpartition(b"\n") if file.exists() else (b"", b"", b"")
            with file.open("r+b" if file.exists() else "xb") as out:
                out.truncate(len(whole[0]) + len(whole[1]))
                out.seek(0, os.SEEK_END)
                out.write((json.dumps(asdict(answer), ensure_ascii=False) + "\n").encode())
                out.flush()
                os.fsync(out.fileno())
        except OSError as error:
            reason = error.strerror or error
            raise StoppedError(f"{file} cannot be written ({reason}): mend that, then go on with --resume") from error

    def answered(self, answers: Sequence[Answer]) -> list[Trial]:
        """The trial of each answer."""
        trials = {trial.number: trial for trial in self.trials}
        return [trials[answer.trial] for answer in answers]

    def open_trials(self, reviewer: str) -> list[Trial]:
        """What this person has not answered yet, in order."""
        done = {answer.trial for answer in self.answers() if answer.reviewer == reviewer}
        return [trial for trial in self.trials if trial.number not in done]
