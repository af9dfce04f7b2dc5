"""The result of a verification."""

from collections.abc import Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from brinell.core.record import Array


class Status(StrEnum):
    """The result of a verification, with the exit code of the command."""

    PROVED = "proved"
    """Exit code 0: everything that is not a claim was recomputed, and drawn samples were replayed."""
    REFUSED = "refused"
    """Exit code 1: something in the folder is false."""
    CONSISTENT = "consistent"
    """Exit code 4: the files agree with each other, but nothing was replayed."""


EXIT_CODES = {Status.PROVED: 0, Status.REFUSED: 1, Status.CONSISTENT: 4}


class Problem(BaseModel):
    """A statement of a folder that is false."""

    model_config = ConfigDict(frozen=True)

    location: str
    """The file, or the model and stage."""
    samples: tuple[int, ...]
    """The first five of the samples with this problem; empty if it concerns a whole file."""
    count: int
    """The number of samples with this problem."""
    description: str
    """The problem in one sentence."""


class VerifyResult(BaseModel):
    """The outcome of a verification."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    run: str
    """The folder."""
    status: Status
    """proved, refused or consistent."""
    passed: bool
    """True if the status is proved."""
    premises: list[str]
    """What the verdict presupposes: whose data and whose models they are, a sentence each."""
    rows: int
    """Rows that were compared with the data, the request and each other."""
    predictions: int = 0
    """Clean predictions that were repeated."""
    successes: int = 0
    """Stored adversarial inputs that were judged again."""
    replayed: int = 0
    """Rows that were computed again from the start."""
    samples: int = 0
    """Samples, over all models, whose rows were computed again."""
    deviations: int = 0
    """Repeated answers and replayed rows that came out differently by no more than rounding, or the chance of a random model."""
    verified_claims: list[str]
    """Statements that were recomputed and hold, a sentence each; empty if there is a problem."""
    unverified_claims: list[str]
    """Statements that were not recomputed, a sentence each."""
    claimed: list[str]
    """Columns and keys of the manifest that are taken from whoever made the folder (docs/reference/trust.md)."""
    problems: list[Problem]
    """The problems."""
    refusal: str = ""
    """Why the models and data of the folder were not used; empty if they were used."""

    def __bool__(self) -> bool:
        """True if the verification passed: a result can be asserted."""
        return self.passed

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return EXIT_CODES[self.status]


class Notes(BaseModel):
    """Collects the problems of a folder."""

    problems: list[Problem] = Field(default_factory=list)

    def note(self, location: str, description: str, samples: Sequence[int] | Array | None = None) -> None:
        """Add a problem of a file or stage, or of some samples. An empty `samples` adds none."""
        if samples is None:
            self.problems.append(Problem(location=location, samples=(), count=0, description=description))
        elif len(samples):
            first = tuple(int(sample) for sample in list(samples)[:5])
            self.problems.append(Problem(location=location, samples=first, count=len(samples), description=description))
