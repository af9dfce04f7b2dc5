"""What can be said of a run from elsewhere without running or opening anything that it names."""

from brinell.store.run import Run
from brinell.studies.verification import against_request, pages
from brinell.studies.verification.result import Notes, VerifyResult


def verify_unrun(run: Run, refused: str) -> VerifyResult:
    """Hold a run's files, tables and page against its own manifest and records. It has not passed, whatever comes out.

    Args:
        run: the run.
        refused: why nothing that it names was used.
    """
    notes = Notes()
    against_request.files(run, notes)
    unmade = pages.derived(run, notes) if not notes.problems else "something else does not hold"
    proved = ["no file is missing, changed or foreign by the manifest's own word"]
    proved += ["the tables and the page are what the records make"] if unmade is None else []
    return VerifyResult(
        run=str(run.path),
        passed=False,
        successes=0,
        predictions=0,
        boundary=0,
        rows=len(run.records()) if not notes.problems else 0,
        rerun=0,
        proved=[] if notes.problems else proved,
        trusted=["every figure: neither the model nor the data was used"],
        problems=notes.problems,
        refused=refused,
    )
