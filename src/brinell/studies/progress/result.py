"""What can be seen of a run while it goes on."""

from typing import Literal

from brinell.analysis.folder_result import Result


class StageProgress(Result):
    """One stage of one model, or the parts of another study."""

    model: str | None
    """Name of the model; null for the parts of a study."""
    stage: str
    """The attack as it was asked for, `clean` for the first check, or `part`."""
    complete: int
    """Shards, or parts, that are whole."""
    claimed: int
    """Those that a process works on."""
    state: Literal["ended", "under way", "ahead"]
    """A stage under way has shards while none after it has; how many more it takes shows when it ends."""


class WorkerProgress(Result):
    """One process that has given a sign of life."""

    by: str
    """Identity of the process."""
    host: str | None
    """Its machine and its number there; null until it has said."""
    position: str | None
    """The model and the stage that it works on, likewise."""
    claims: tuple[str, ...]
    """Tasks that the process has claimed."""
    age: float | None
    """Seconds since its last sign of life, by the clock of the store against that of this machine; null where the store does
    not tell."""
    alive: bool
    """True if its last sign of life is younger than the lease, after which others take over its claims."""
    rate: float | None
    """Forwards and backwards a second."""


class RunProgress(Result):
    """What `brinell progress --json` prints."""

    run: str
    """The folder or the address."""
    state: Literal["ended", "in shards", "by one process"]
    """State of the run: ended, or how it is computed."""
    shards: int | None = None
    """Into how many groups the samples of each stage are cut at least; null where one process makes it."""
    samples: int | None = None
    """Samples of the run; null where nothing says so yet."""
    stages: tuple[StageProgress, ...]
    """All stages, in order."""
    workers: tuple[WorkerProgress, ...] = ()
    """Who works on it; those of a run by one process are not known."""
    position: str | None = None
    """The model and the stage that are under way."""
    open_samples: int | None = None
    """Samples that this stage is not done with; null where no process has said so."""
    robust: int | None = None
    """Samples of this model that nothing has broken at the largest budget so far, likewise."""
    rate: float | None = None
    """Forwards and backwards a second of all processes that are alive."""
    seconds_left: float | None = None
    """Until the run ends, at that rate: an estimate, since nobody knows how many samples the later stages will find open."""
