"""What a verification says."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from brinell.core.record import Array


class Problem(BaseModel):
    """Something in a run that does not hold."""

    model_config = ConfigDict(frozen=True)

    where: str
    """File, or model and stage."""
    samples: tuple[int, ...]
    """The first few samples concerned; empty where it concerns a whole file."""
    count: int
    """How many samples."""
    what: str
    """What was found, in one sentence."""


class VerifyResult(BaseModel):
    """Outcome of a verification."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    run: str
    """The run folder."""
    passed: bool
    """Whether no problem was found."""
    successes: int
    """Adversarial inputs that were shown to the model again."""
    predictions: int
    """Clean predictions that were repeated."""
    boundary: int
    """Clean predictions, and robust samples attacked again, that came out differently by rounding alone, or a random model's
    chance."""
    rows: int
    """Rows of records that were held against the data, the request and each other."""
    rerun: int
    """Robust samples that were attacked again from the start."""
    proved: list[str]
    """What was recomputed and holds, each in a sentence; empty where something does not hold."""
    trusted: list[str]
    """What was not recomputed and is taken from the run as it says it, each in a sentence."""
    problems: list[Problem]
    """What does not hold."""
    refused: str = ""
    """Why nothing that a folder from elsewhere names was used, in a sentence: then it has not passed; empty where it was."""

    def __bool__(self) -> bool:
        """Whether the verification passed, so that it can be asserted."""
        return self.passed


class Notes(BaseModel):
    """Problems as they are found."""

    problems: list[Problem] = Field(default_factory=list)

    def note(self, where: str, what: str, samples: Sequence[int] | Array | None = None) -> None:
        """A problem with a file or a whole stage; with `samples`, a problem with these, if there are any."""
        if samples is None:
            self.problems.append(Problem(where=where, samples=(), count=0, what=what))
        elif len(samples):
            first = tuple(int(sample) for sample in list(samples)[:5])
            self.problems.append(Problem(where=where, samples=first, count=len(samples), what=what))
