"""The result of a verification, and the report that says it."""

from enum import StrEnum

from pydantic import computed_field

from brinell.reports.values import Report, Table
from brinell.studies.differences import Difference
from brinell.studies.result import ReportedResult


class Status(StrEnum):
    """The result of a verification."""

    PROVED = "proved"
    REFUSED = "refused"
    CONSISTENT = "consistent"


ENDINGS = {
    Status.PROVED: (0, "All that was repeated holds"),
    Status.REFUSED: (1, "Refused: something of what was given is false"),
    Status.CONSISTENT: (4, "The files agree with each other; nothing more is proved"),
}
"""The exit code of the command, and its sentence."""


class VerifyResult(ReportedResult):
    """The outcome of a verification."""

    run: str
    """The folder."""
    premises: list[str] = []
    """Premises of the verdict: whose data and whose models they are, a sentence each."""
    replayed: int = 0
    """Rows that were computed again from the start."""
    samples: int = 0
    """Samples of an audit, over all models, whose rows were computed again from the start."""
    attacked: int = 0
    """Samples that the audit attacked, over all models."""
    coverage: str = ""
    """The part that was repeated, and the chance to miss what is false; empty if nothing was."""
    undecided: str = ""
    """The reason for which the repetition decides nothing, such as too few samples; else empty."""
    deviations: int = 0
    """Rows and arrays that came out differently by no more than rounding."""
    verified_claims: list[str] = []
    """Statements that were recomputed and hold, a sentence each; empty if there is a problem."""
    unverified_claims: list[str] = []
    """Statements that were not recomputed, a sentence each."""
    claimed: list[str] = []
    """Columns and keys of the manifest that are taken from whoever made the folder
    (docs/reference/trust.md)."""
    problems: list[Difference] = []
    """The problems."""
    refusal: str = ""
    """Why nothing was repeated; empty if it was."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def status(self) -> Status:
        """proved, refused or consistent."""
        return (
            Status.REFUSED
            if self.problems
            else Status.CONSISTENT
            if self.refusal or self.undecided
            else Status.PROVED
        )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def passed(self) -> bool:
        """True if the status is proved."""
        return self.status == Status.PROVED

    def joined(self, part: "VerifyResult", prefix: str) -> "VerifyResult":
        """The result of a folder with that of a folder in it, whose sentences begin
        with `prefix`.
        """
        problems = [
            *self.problems,
            *(
                problem.model_copy(update={"location": f"{prefix}/{problem.location}"})
                for problem in part.problems
            ),
        ]
        return self.model_copy(
            update={
                "verified_claims": [
                    *self.verified_claims,
                    *(f"{prefix}: {text}" for text in part.verified_claims),
                ]
                if not problems
                else [],
                "unverified_claims": [
                    *self.unverified_claims,
                    *(f"{prefix}: {text}" for text in part.unverified_claims),
                ],
                "problems": problems,
                "refusal": self.refusal or (part.refusal and f"{prefix}: {part.refusal}"),
                "undecided": self.undecided or (part.undecided and f"{prefix}: {part.undecided}"),
                "coverage": "; ".join(
                    filter(
                        None,
                        [self.coverage, part.coverage and f"{prefix}: {part.coverage}"],
                    )
                ),
            }
        )

    def __bool__(self) -> bool:
        """True if the verification passed: a result can be asserted."""
        return self.passed

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return ENDINGS[self.status][0]

    def report(self) -> Report:
        """The lines of the terminal."""
        problems = [
            f"{problem.location}: {problem.description}{_samples(problem)}"
            for problem in self.problems
        ]
        kinds = (
            ("false", problems),
            ("premise", self.premises),
            ("verified", self.verified_claims),
            ("not verified", self.unverified_claims),
        )
        # Without a coverage and a refusal only the full stop is left, and nothing is said.
        coverage = f"{self.coverage or self.refusal and f'Nothing was repeated: {self.refusal}'}."
        reason = f" Not decided: {self.undecided}." if self.undecided and not self.problems else ""
        return Report(
            verb="verify",
            title="Verification",
            subject=self.run,
            sentences=[
                *([coverage] if coverage != "." else []),
                f"{ENDINGS[self.status][1]}.{reason}",
            ],
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
    return (
        f" ({problem.count} samples, the first {', '.join(map(str, problem.samples))})"
        if problem.count
        else ""
    )
