"""What can be said of a run from elsewhere without running or opening anything that it names."""

from collections.abc import Sequence

from brinell.core.errors import Spelling, spell
from brinell.store.folder import fitting
from brinell.store.run import Run
from brinell.studies.verification.alone import alone
from brinell.studies.verification.result import Notes, VerifyResult


def verify_unrun(run: Run, refused: str, signed: Sequence[str] = ()) -> VerifyResult:
    """Hold a run's folder against itself. It has not passed, whatever comes out.

    Args:
        run: the run.
        refused: why nothing that it names was used; its options are spelled as at a terminal.
        signed: whose signature it carries, in a sentence.
    """
    notes = Notes()
    with fitting(run.path):
        rows = alone(run, notes)
    proved = [
        *signed,
        "no file is missing, changed or foreign by the manifest's own word",
        f"{rows:,} rows agree with the request's file, with each other and with which inputs are stored",
        "the tables and the page are what the records make, unless another version wrote them",
    ]
    return VerifyResult(
        run=str(run.path),
        passed=False,
        successes=0,
        predictions=0,
        boundary=0,
        rows=rows,
        rerun=0,
        proved=[] if notes.problems else proved,
        trusted=["every figure: neither the model nor the data was used"],
        problems=notes.problems,
        refused=spell(refused, Spelling.TERMINAL),
    )
