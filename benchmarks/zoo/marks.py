"""What an audit says of the quick member of each kind: its headline and the checks that fail.

A kind goes unnoticed if every check passed and the headline is more than 1 of 60 samples above the
truth. Marks are kept as lines of JSON, and every figure about checks is made of them: no audit is
made twice.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.defences import audit
from benchmarks.zoo.quick import SEED, Member
from brinell.core.checks import Finding


@dataclass(frozen=True, kw_only=True)
class Mark:
    """The audit of one quick member."""

    kind: str
    samples: int
    clean: int | None
    headline: int | None
    """Samples robust at the budget; None where the model was refused."""
    truth: int
    allowed: int
    """The largest headline that is not too high."""
    failed: tuple[str, ...]
    """Codes of failed checks."""
    missing: tuple[str, ...]
    """Codes of checks that were not made."""
    unsure: bool
    """True if the result says that its headline may be too high."""
    forwards: int
    seconds: float
    """Of the processor."""

    @property
    def is_high(self) -> bool:
        """True if the headline is too high."""
        return self.headline is not None and self.headline > self.allowed

    def is_unnoticed(self, without: str = "") -> bool:
        """True if the headline is too high and nothing says so; `without` a check, if that one
        passed.
        """
        failed = set(self.failed) - {without}
        says_why = self.unsure and (not without or bool(self.missing))
        return self.is_high and not failed and not says_why


@contextmanager
def passing(code: str) -> Iterator[None]:
    """Break the check of a code while the block runs: it passes whatever it sees."""
    original = Finding.__init__

    def passed(finding: Finding, **values: Any) -> None:
        if values["code"] == code and values["passed"] is False:
            values["passed"] = True
        original(finding, **values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Finding, "__init__", passed)
        yield


def mark(
    member: Member,
    start: int = 0,
    samples: int | None = None,
    cascade: Sequence[str] = (),
) -> Mark:
    """The audit of a member, on its samples or on a slice of so many test samples, by the member's
    stages or others.
    """
    if samples is not None:
        member = replace(member, samples=start + samples)
    base, pair = member.open()
    base = replace(base, x=base.x[start:], y=base.y[start:])
    began = time.process_time()
    answer = audit(
        pair.defended,
        base.x,
        base.y,
        member.eps,
        list(cascade) or member.cascade,
        SEED,
        **member.entry.audit,
    )
    return Mark(
        kind=member.kind,
        samples=member.samples,
        clean=answer.clean,
        headline=answer.headline,
        truth=member.truth,
        allowed=member.allowed,
        failed=answer.failed,
        missing=answer.missing,
        unsure=answer.caveat,
        forwards=answer.forwards,
        seconds=round(time.process_time() - began, 2),
    )


def read_marks(file: Path) -> dict[str, Mark]:
    """Marks that are kept, by kind; the last one of a kind counts."""
    if not file.is_file():
        return {}
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    marks = [Mark(**row | {key: tuple(row[key]) for key in ("failed", "missing")}) for row in rows]
    return {row.kind: row for row in marks}


def keep_mark(row: Mark, file: Path) -> None:
    """Add a mark to those that are kept."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(asdict(row)) + "\n")


def catches(
    marks: Iterable[Mark], codes: Iterable[str]
) -> Mapping[str, tuple[list[str], list[str]]]:
    """By check: the kinds that it fails on, and those of them with too high a headline on which no
    other check fails.
    """
    marks = list(marks)
    return {
        code: (
            [row.kind for row in marks if code in row.failed],
            [row.kind for row in marks if row.is_high and set(row.failed) == {code}],
        )
        for code in codes
    }
