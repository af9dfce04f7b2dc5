"""The progress of a run as a terminal shows it."""

from collections.abc import Iterator
from typing import Any

from brinell.runners.progress import duration


def lines(progress: Any) -> Iterator[str]:
    """The result line by line."""
    of = "" if progress.samples is None else f" of {progress.samples:,} samples"
    descriptions = {
        "ended": "is whole",
        "in shards": f"goes on in {progress.shards} shards",
        "by one process": "goes on, or was stopped",
    }
    yield f"{progress.run}: the run{of} {descriptions[progress.state]}"
    for stage in progress.stages:
        claimed = f", {stage.claimed} claimed" if stage.claimed else ""
        if stage.complete or stage.claimed or stage.state == "under way":
            noun = f"{'part' if stage.stage == 'part' else 'shard'}{'s' * (stage.complete != 1)}"
            shards_text = f"{stage.complete:,} {noun} done{claimed}"
            shards_text = shards_text if progress.state == "in shards" or stage.stage == "part" else ""
            yield f"  {' '.join(filter(None, (stage.model, stage.stage)))}: {', '.join(filter(None, (stage.state, shards_text)))}"
    for worker in progress.workers:
        age = "" if worker.age is None else f"last sign of life {duration(worker.age)} ago"
        rate = "" if worker.rate is None else f"{worker.rate:,.0f} passes/s"
        state = "" if worker.alive else "taken for lost"
        claims = f"{len(worker.claims)} claimed" if worker.claims else ""
        yield f"  process {worker.host or worker.by}: {', '.join(filter(None, (worker.position, claims, rate, age, state)))}"
    if progress.position is not None:
        robust = "" if progress.robust is None else f"{progress.robust:,} robust so far"
        open_text = "" if progress.open_samples is None else f"{progress.open_samples:,} open in this stage"
        rate = "" if progress.rate is None else f"{progress.rate:,.0f} passes/s"
        time = "" if progress.seconds_left is None else f"about {duration(progress.seconds_left)} left"
        yield f"{progress.position}: {', '.join(filter(None, (robust, open_text, rate, time))) or 'under way'}"
