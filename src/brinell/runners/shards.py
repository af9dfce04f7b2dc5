"""An audit by any number of processes on any number of machines that share a store (`runners.shard_worker`).

Each process makes the same run in its own folder, and publishes its shards:

    shards/rows/...-BY.parquet   rows of a shard, and under shards/arrays its inputs, named after the process that made them
    shards/done/CELL/KEY.json    the record of a finished shard: which rows and arrays count

The process that assembles the run writes all shards into the run folder and resumes the run there, which has nothing left to
compute (design/0025-shards.md).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from brinell.core.contracts import Remark
from brinell.engine.peers import ShardReport
from brinell.engine.plan import Plan
from brinell.engine.progress import Progress, SilentProgress
from brinell.runners import local
from brinell.runners.shard_worker import Shard, ShardWorker, run_worker
from brinell.runners.shared_progress import SharedProgress
from brinell.store.claims import LEASE
from brinell.store.files import write_atomically
from brinell.store.folder import SHARDS
from brinell.store.run import LAYOUT, Run

Answer = TypeVar("Answer")
MIN_GROUP = 8
"""Smallest group, for any number of shards; with fewer samples, claims and files cost more than they save."""
MAX_LAST_GROUPS = 4
"""Largest number of groups of the last samples of a stage."""


class ShardPeers:
    """Other processes of a sharded audit (`engine.peers.Peers`).

    `group` is the largest group size, set by the first process; with `keeps_all` the folder holds the arrays of all shards.
    """

    def __init__(self, worker: ShardWorker, folder: Path, group: int, *, keeps_all: bool = False) -> None:
        self.keeps_all = keeps_all
        self._worker, self._folder, self._group = worker, folder, group
        self._collected: set[str] = set()
        """Keys of the finished shards in the folder."""

    def assembler(self, folder: Path) -> "ShardPeers":
        """Peers of the same process while it assembles the run folder."""
        return ShardPeers(self._worker, folder, self._group, keeps_all=True)

    def group_size(self, limit: int, samples: int) -> int:
        """See `Peers`; the process that began the run set the limit."""
        return group_size(self._group, samples, self._worker.shard.total)

    def last_group_size(self, waiting: int, under_way: int) -> int:
        """See `last_group_size`."""
        return last_group_size(waiting, under_way, self._worker.shard.total)

    def collect(self, cell: str) -> dict[str, ShardReport]:
        """See `Peers`."""
        reports = {}
        for key in self._worker.done_keys(cell):
            if key in self._collected or (record := self._worker.read_record(key)) is None:
                continue
            shard = Path(key).stem
            if self.keeps_all and record["arrays"]:
                self._fetch(record["arrays"], record["digests"], "arrays", f"shard-{cell}-{shard}.safetensors", key)
            self._fetch(record["rows"], record["digests"], "records", f"shard-{cell}-{shard}.parquet", key)
            self._collected.add(key)
            remarks = tuple(Remark(code, text) for code, text in record["remarks"])
            details = {name: record[name] for name in ("legend", "failed", "seconds", "traffic")}
            reports[shard] = ShardReport(remarks=remarks, **details)
        return reports

    def _fetch(self, source: str, digests: Mapping[str, str], folder: str, name: str, record_key: str) -> None:
        """Copy a file of a shard into the run folder."""
        content = self._worker.read_file(source, digests, record_key)
        write_atomically(self._folder / folder / name, lambda temporary: temporary.write_bytes(content))

    def claim(self, cell: str, keys: Sequence[str]) -> AbstractContextManager[str | None]:
        """See `Peers`."""
        return self._worker.claim(cell, keys)

    def finish(self, cell: str, key: str, report: ShardReport) -> bool:
        """See `Peers`; publishes rows and arrays first, then, atomically, the record."""
        name, files, keys = f"shard-{cell}-{key}", dict[str, Path](), dict[str, str]()
        for folder, ending in (("arrays", "safetensors"), ("records", "parquet")):
            file = self._folder / folder / f"{name}.{ending}"
            if file.exists():
                keys[folder] = f"{SHARDS}/{'rows' if folder == 'records' else folder}/{cell}-{key}-{self._worker.name}.{ending}"
                files[keys[folder]] = file
        values = {
            "rows": keys["records"],
            "arrays": keys.get("arrays"),
            "remarks": [[remark.code, remark.text] for remark in report.remarks],
            "legend": dict(report.legend),
            "failed": dict(report.failed),
            "seconds": report.seconds,
            "traffic": dict(report.traffic),
        }
        first = self._worker.publish(cell, key, files, values)
        if first:
            self._collected.add(f"{SHARDS}/done/{cell}/{key}.json")
        if "arrays" in keys and not self.keeps_all:
            files[keys["arrays"]].unlink()
        return first

    def make_once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """See `Peers`."""
        return self._worker.make_once(name, make)

    def seconds(self, cells: Sequence[str]) -> float:
        """See `Peers`; 0 until the run is assembled."""
        if not self.keeps_all:
            return 0.0
        records = (self._worker.read_record(key) for cell in cells for key in self._worker.done_keys(cell))
        return sum(float(record["seconds"]) for record in records if record is not None)


def group_size(limit: int, samples: int, shards: int) -> int:
    """Group size of a stage, at most `limit`: a multiple of `shards` groups, if each is large enough.

    The size is rounded down; the samples left over wait for others and are fewer than the groups.
    """
    if shards == 1:  # any number of processes, with exactly the rows of a single process
        return limit
    groups = shards * math.ceil(samples / (limit * shards))
    return max(1, min(limit, samples // max(1, min(groups, samples // MIN_GROUP))))


def last_group_size(waiting: int, under_way: int, shards: int) -> int:
    """Group size when `waiting` samples do not fill a group and `under_way` groups are unfinished; 0 means wait.

    No group is formed while two are under way, and at most `MAX_LAST_GROUPS` are formed, because small groups cost more per
    sample.
    """
    if under_way >= min(shards, 2) or (under_way and waiting < MIN_GROUP):
        return 0
    return math.ceil(waiting / max(1, min(min(shards, MAX_LAST_GROUPS) - under_way, waiting // MIN_GROUP)))


def run(
    plan: Plan,
    out: Path,
    shard: Shard,
    progress: Progress,
    *,
    command: str,
    page: Callable[[Path], object],
    answer: Callable[[Run, str], Answer],
    lease: float = LEASE,
) -> Answer:
    """Work on a plan until the run in the store is complete.

    Args:
        plan: the plan, the same in all processes.
        out: the run folder on a disk that all processes see, or the address of one (`store.shared`).
        shard: where this process begins, and how many shards there are.
        progress: receives the progress of all processes.
        command: the command line that repeats the run, for the manifest.
        page: writes the page of a complete run into its folder.
        answer: makes the result from the run and the name of its folder; for an address, the run holds no arrays.
        lease: seconds after which a process that gives no sign of life loses what it works on.

    Raises:
        RequestError: the store holds another run or an unsharded one, or cannot be used.
        StoppedError: the store does not answer, or is full.
    """

    def work(worker: ShardWorker, folder: Path, plan_values: Mapping[str, Any]) -> Callable[[Path], None]:
        """Work on the run with others; returns how the folder is finished."""
        peers = ShardPeers(worker, folder, int(plan_values["group"]))

        def finish(target: Path) -> None:
            """Assemble the run and write its page."""
            resume = LAYOUT.has(target)
            local.run(plan, target, SilentProgress(), command=command, resume=resume, peers=peers.assembler(target))
            page(target)

        local.run(plan, folder, SharedProgress(worker.store, worker.name, progress), command=command, peers=peers)
        return finish

    return run_worker(
        local.make_job(plan, out, command),
        shard,
        plan_values={"group": plan.group_size, "samples": len(plan.ids)},
        needed_files=("records/",),
        work=work,
        answer=lambda folder, name: answer(Run.open(folder, thresholds=True), name),
        message=progress.note,
        lease=lease,
    )
