"""A review: pairs of pictures that people are shown, and their answers (design/0015-review.md).

manifest.json        the request, and every trial: sample, class, size of the change
pairs.safetensors    clean and changed pictures, uint8 (n, H, W, C)
pairs.html           the page on which a person judges the pairs
answers.json         the answers of all persons
report.html          the results, computed from the files above
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import model_validator

from brinell.core import bounded
from brinell.core.errors import RequestError, one_line
from brinell.core.record import Array
from brinell.core.user_files import user_path
from brinell.manifest import Amount, Content, Count, Listing, Manifest, fault, misfit
from brinell.store.files import digest, read_arrays, write_arrays, write_text
from brinell.store.folder import Layout


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
    """A person's answer to a trial."""

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


class Answers(Content):
    """A file of answers: what the page saves, and `answers.json` of the folder."""

    review: str
    """Digest of the pairs that were judged."""
    answers: Listing[Answer]


PAIRS, ANSWERS, JUDGE = "pairs.safetensors", "answers.json", "pairs.html"
LAYOUT = Layout(verb="review", noun="review", version=1, manifest=ReviewManifest, derived=(ANSWERS, JUDGE))


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
    ) -> "Review":
        """Write a new review.

        Args:
            path: its folder.
            request: the settings, ready for JSON.
            classes: names of the classes.
            trials: the trials in order.
            pairs: `clean` and `changed`, uint8 (n, H, W, C), in the order of the trials.

        Raises:
            StoppedError: the folder cannot be written.
        """
        write_arrays(path / PAIRS, pairs)
        manifest = {
            "request": dict(request),
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
        arrays = read_arrays(self.path / PAIRS)
        return arrays["clean"], arrays["changed"]

    @property
    def digest(self) -> str:
        """Digest of the pairs, which a file of answers names."""
        return digest(self.path / PAIRS)

    def answers(self) -> list[Answer]:
        """All answers so far.

        Raises:
            RequestError: the file is damaged, or belongs to another review.
        """
        return self.read(self.path / ANSWERS) if (self.path / ANSWERS).exists() else []

    def read(self, file: Path) -> list[Answer]:
        """The answers in a file.

        Raises:
            RequestError: the file is no file of answers, or belongs to another review.
        """
        try:
            content = json.loads(bounded.text(file))
        except (ValueError, RecursionError, OSError) as error:
            raise RequestError(f"{file} is no file of answers: {one_line(error)}") from None
        if reason := fault(content, Answers):
            raise RequestError(f"{file} is no file of answers: {reason}")
        if content["review"] != self.digest:
            raise RequestError(f"{file} answers other pairs than those of {self.path}: name the folder whose page saved it")
        answers = [Answer(**answer) for answer in content["answers"]]
        if any(answer.trial >= len(self.trials) or (answer.named or 0) >= len(self.classes) for answer in answers):
            raise RequestError(f"{file} answers a pair or names a class that {self.path} does not have")
        return answers

    def add(self, answers: Sequence[Answer]) -> None:
        """Add answers; a later answer of a person to a pair replaces an earlier one.

        Raises:
            RequestError: the answers before them are damaged.
            StoppedError: they cannot be written.
        """
        latest = {(answer.reviewer, answer.trial): answer for answer in (*self.answers(), *answers)}
        content = Answers(review=self.digest, answers=[latest[key] for key in sorted(latest)])
        write_text(self.path / ANSWERS, content.model_dump_json(indent=1) + "\n")

    def trials_of(self, answers: Sequence[Answer]) -> list[Trial]:
        """The trial of each answer."""
        trials = {trial.number: trial for trial in self.trials}
        return [trials[answer.trial] for answer in answers]
