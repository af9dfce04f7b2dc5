"""The result of a verification, and the report that says it."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path

from pydantic import Field

from brinell.reports.values import Report, Table
from brinell.store.standing import claimed_names
from brinell.studies.result import ReportedResult
from brinell.studies.verification.differences import Claims, Comparison, Difference


class Status(StrEnum):
    """The result of a verification, with the exit code of the command."""

    PROVED = "proved"
    """Exit code 0: everything that is not a claim was recomputed, and drawn samples were repeated."""
    REFUSED = "refused"
    """Exit code 1: something in the folder is false."""
    CONSISTENT = "consistent"
    """Exit code 4: the files agree with each other, but nothing was repeated."""


EXIT_CODES = {Status.PROVED: 0, Status.REFUSED: 1, Status.CONSISTENT: 4}
ENDINGS = {
    Status.PROVED: "All holds that is not a claim",
    Status.REFUSED: "Refused: something in the folder is false",
    Status.CONSISTENT: "The files agree with each other; nothing more is proved",
}


NOTHING = Claims({})


class VerifyResult(ReportedResult):
    """The outcome of a verification."""

    run: str
    """The folder."""
    status: Status
    """proved, refused or consistent."""
    passed: bool
    """True if the status is proved."""
    premises: list[str]
    """Premises of the verdict: whose data and whose models they are, a sentence each."""
    rows: int = 0
    """Rows that were compared with those of a repetition."""
    predictions: int = 0
    """Clean predictions that were repeated."""
    successes: int = 0
    """Stored adversarial inputs that were judged again."""
    replayed: int = 0
    """Rows that were computed again from the start."""
    samples: int = 0
    """Samples of an audit, over all models, whose rows were computed again from the start."""
    deviations: int = 0
    """Rows and arrays that came out differently by no more than rounding."""
    verified_claims: list[str]
    """Statements that were recomputed and hold, a sentence each; empty if there is a problem."""
    unverified_claims: list[str]
    """Statements that were not recomputed, a sentence each."""
    claimed: list[str] = Field(default_factory=list)
    """Columns and keys of the manifest that are taken from whoever made the folder (docs/reference/trust.md)."""
    problems: list[Difference]
    """The problems."""
    refusal: str = ""
    """Why the models and data of the folder were not used; empty if they were used."""

    @classmethod
    def of(
        cls,
        folder: Path,
        comparison: Comparison,
        claims: Claims = NOTHING,
        *,
        premises: Sequence[str] = (),
        verified: Iterable[str] = (),
        unverified: Sequence[str] = (),
        refusal: str = "",
        repeated: bool = True,
        **counts: int,
    ) -> "VerifyResult":
        """The result of comparing a folder with its repetition, or, with a `refusal`, of its files alone."""
        status = Status.CONSISTENT if refusal or not repeated else Status.PROVED
        status = Status.REFUSED if comparison.differences else status
        return cls(
            run=str(folder),
            status=status,
            passed=status == Status.PROVED,
            premises=list(premises),
            rows=comparison.rows,
            deviations=comparison.boundary,
            verified_claims=[] if comparison.differences else list(verified),
            unverified_claims=[*unverified, *([] if refusal else dict.fromkeys(claims.patterns.values()))],
            claimed=claimed_names(claims.patterns),
            problems=comparison.differences,
            refusal=refusal,
            **counts,
        )

    def joined(self, part: "VerifyResult", prefix: str) -> "VerifyResult":
        """The result of a folder with that of a folder in it, whose sentences begin with `prefix`."""
        status = next(s for s in (Status.REFUSED, Status.CONSISTENT, Status.PROVED) if s in (self.status, part.status))
        located = [problem.model_copy(update={"location": f"{prefix}/{problem.location}"}) for problem in part.problems]
        changes = {
            "status": status,
            "passed": status == Status.PROVED,
            "verified_claims": [*self.verified_claims, *(f"{prefix}: {text}" for text in part.verified_claims)],
            "unverified_claims": [*self.unverified_claims, *(f"{prefix}: {text}" for text in part.unverified_claims)],
            "problems": [*self.problems, *located],
        }
        counts = {name: getattr(self, name) + getattr(part, name) for name in ("rows", "replayed", "deviations")}
        return self.model_copy(update=changes | counts)

    def __bool__(self) -> bool:
        """True if the verification passed: a result can be asserted."""
        return self.passed

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return EXIT_CODES[self.status]

    def report(self) -> Report:
        """The lines of the terminal."""
        counts = (
            f"{self.rows:,} rows were compared, {self.predictions:,} clean predictions and {self.successes:,} adversarial inputs "
            f"judged again, {self.replayed:,} rows computed again."
        )
        notice = f" Neither the model nor the data was used: {self.refusal}." if self.refusal else ""
        problems = [f"{problem.location}: {problem.description}{_samples(problem)}" for problem in self.problems]
        kinds = (
            ("false", problems),
            ("premise", self.premises),
            ("verified", self.verified_claims),
            ("not verified", self.unverified_claims),
        )
        return Report(
            verb="verify",
            title="Verification",
            subject=self.run,
            sentences=[f"{ENDINGS[self.status]}.{notice}", *([counts] if self.rows else [])],
            blocks=[
                Table(
                    title="What was verified",
                    columns=("", "statement"),
                    rows=[(kind, text) for kind, texts in kinds for text in texts],
                    terminal=True,
                )
            ],
        )


def _samples(problem: Difference) -> str:
    return f" ({problem.count} samples, the first {', '.join(map(str, problem.samples))})" if problem.count else ""
