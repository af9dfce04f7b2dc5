"""The progress of a run as a terminal shows it."""

from collections.abc import Iterator
from typing import Any

from brinell.runners.progress import duration


def lines(found: Any) -> Iterator[str]:
    """The result line by line."""
    of = "" if found.samples is None else f" of {found.samples:,} samples"
    who = {"ended": "is whole", "in shards": f"goes on in {found.shards} shards", "by one process": "goes on, or was stopped"}
    yield f"{found.run}: the run{of} {who[found.state]}"
    for one in found.stages:
        claimed = f", {one.claimed} claimed" if one.claimed else ""
        if one.done or one.claimed or one.state == "under way":
            made = f"{one.done:,} {'part' if one.stage == 'part' else 'shard'}{'s' * (one.done != 1)} done{claimed}"
            made = made if found.state == "in shards" or one.stage == "part" else ""
            yield f"  {' '.join(filter(None, (one.model, one.stage)))}: {', '.join(filter(None, (one.state, made)))}"
    for worker in found.workers:
        age = "" if worker.age is None else f"last sign of life {duration(worker.age)} ago"
        rate = "" if worker.rate is None else f"{worker.rate:,.0f} passes/s"
        lost = "" if worker.alive else "taken for lost"
        claims = f"{len(worker.claims)} claimed" if worker.claims else ""
        yield f"  process {worker.host or worker.by}: {', '.join(filter(None, (worker.at, claims, rate, age, lost)))}"
    if found.at is not None:
        robust = "" if found.robust is None else f"{found.robust:,} robust so far"
        left = "" if found.left is None else f"{found.left:,} open in this stage"
        rate = "" if found.rate is None else f"{found.rate:,.0f} passes/s"
        time = "" if found.seconds_left is None else f"about {duration(found.seconds_left)} left"
        yield f"{found.at}: {', '.join(filter(None, (robust, left, rate, time))) or 'under way'}"
