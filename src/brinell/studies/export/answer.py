"""What `brinell export` says."""

from brinell.analysis.results import Result


class ExportAnswer(Result):
    """`brinell export --json`."""

    run: str
    """The run folder."""
    to: str
    """What it was exported to."""
    where: str
    """The folder, or the address of the server."""
    metrics: int
    """Values that were written; 0 for RobustBench, whose entries hold a few fields."""
    files: tuple[str, ...]
    """Files that were written or uploaded, within `where`; event files have names of their own and are left out."""
    notes: tuple[str, ...]
    """What is missing from it, or keeps it from comparison with others."""
