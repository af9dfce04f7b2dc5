"""An audit by any number of processes on any number of machines that meet in a store (`runners.meeting`).

Each process makes the same run in a folder of its own, and shares its shards:

    shards/rows/...-BY.parquet   rows of a shard, and under shards/arrays its inputs, named after the process that made them
    shards/done/CELL/KEY.json    that a shard is whole, and whose rows and arrays count

Who puts the run together writes all shards into the run folder and resumes the run there, which finds nothing left to compute and
ends as any run does (design/0025-shards.md).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from brinell.core.contracts import Remark
from brinell.engine.peers import ShardReport
from brinell.engine.plan import Plan
from brinell.engine.progress import Progress, Silent
from brinell.runners import local
from brinell.runners.meeting import Meeting, Shard, meet
from brinell.runners.shared_progress import SharedProgress
from brinell.store.claims import LEASE
from brinell.store.files import write_atomically
from brinell.store.folder import SHARDS
from brinell.store.run import LAYOUT, Run

Answer = TypeVar("Answer")
LEAST_GROUP = 8
"""Samples that a group holds at least, however many shards there are: below, claims and files cost more than they save."""
LAST = 4
"""Groups into which the last samples of a stage are cut at most."""


class Shards:
    """Other processes, as an audit asks them (`engine.peers.Peers`).

    `group` are the samples in a group at most, as the first process said; with `whole` the folder is to hold all shards' arrays.
    """

    def __init__(self, meeting: Meeting, folder: Path, group: int, *, whole: bool = False) -> None:
        self.whole = whole
        self._meeting, self._folder, self._group = meeting, folder, group
        self._had: set[str] = set()
        """Keys of what is done and in the folder."""

    def assembler(self, folder: Path) -> "Shards":
        """The same process when it puts all shards into the run folder."""
        return Shards(self._meeting, folder, self._group, whole=True)

    def size(self, most: int, samples: int) -> int:
        """As of `group_size`; the most is what the first process said."""
        return group_size(self._group, samples, self._meeting.shard.of)

    def last(self, left: int, under_way: int) -> int:
        """As of `last_size`."""
        return last_size(left, under_way, self._meeting.shard.of)

    def collect(self, cell: str) -> dict[str, ShardReport]:
        """As of `Peers`."""
        found = {}
        for key in self._meeting.done(cell):
            if key in self._had or (told := self._meeting.told(key)) is None:
                continue
            shard = Path(key).stem
            if self.whole and told["arrays"]:
                self._fetch(told["arrays"], told["digests"], "arrays", f"shard-{cell}-{shard}.safetensors", key)
            self._fetch(told["rows"], told["digests"], "records", f"shard-{cell}-{shard}.parquet", key)
            self._had.add(key)
            remarks = tuple(Remark(code, text) for code, text in told["remarks"])
            rest = {name: told[name] for name in ("legend", "failed", "seconds", "traffic")}
            found[shard] = ShardReport(remarks=remarks, **rest)
        return found

    def _fetch(self, source: str, digests: Mapping[str, str], folder: str, name: str, done: str) -> None:
        """Copy a file of a shard into the run folder."""
        content = self._meeting.content(source, digests, done)
        write_atomically(self._folder / folder / name, lambda temporary: temporary.write_bytes(content))

    def take(self, cell: str, keys: Sequence[str]) -> AbstractContextManager[str | None]:
        """As of `Peers`."""
        return self._meeting.take(cell, keys)

    def finish(self, cell: str, key: str, told: ShardReport) -> bool:
        """As of `Peers`: rows and arrays first, then in one step that they count."""
        name, files, keys = f"shard-{cell}-{key}", dict[str, Path](), dict[str, str]()
        for folder, ending in (("arrays", "safetensors"), ("records", "parquet")):
            file = self._folder / folder / f"{name}.{ending}"
            if file.exists():
                keys[folder] = f"{SHARDS}/{'rows' if folder == 'records' else folder}/{cell}-{key}-{self._meeting.me}.{ending}"
                files[keys[folder]] = file
        said = {
            "rows": keys["records"],
            "arrays": keys.get("arrays"),
            "remarks": [[one.code, one.text] for one in told.remarks],
            "legend": dict(told.legend),
            "failed": dict(told.failed),
            "seconds": told.seconds,
            "traffic": dict(told.traffic),
        }
        first = self._meeting.offer(cell, key, files, said)
        if first:
            self._had.add(f"{SHARDS}/done/{cell}/{key}.json")
        if "arrays" in keys and not self.whole:
            files[keys["arrays"]].unlink()
        return first

    def once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """As of `Peers`."""
        return self._meeting.once(name, make)

    def seconds(self, cells: Sequence[str]) -> float:
        """As of `Peers`; asked when the run is put together, and 0 before."""
        if not self.whole:
            return 0.0
        found = (self._meeting.told(key) for cell in cells for key in self._meeting.done(cell))
        return sum(float(told["seconds"]) for told in found if told is not None)


def group_size(most: int, samples: int, shards: int) -> int:
    """Samples in a group of a stage, at most `most`: as many groups as shards or a multiple, if that leaves enough in each.

    Rounded down, since samples that fill no group wait for others: those are fewer than the groups.
    """
    if shards == 1:  # any number of processes, and the rows of one alone in every bit
        return most
    groups = shards * math.ceil(samples / (most * shards))
    return max(1, min(most, samples // max(1, min(groups, samples // LEAST_GROUP))))


def last_size(left: int, under_way: int, shards: int) -> int:
    """Samples in a group when so many wait, which fill none, while so many groups are under way; 0 for none now.

    Nothing is cut while two groups are under way, and no more than four come of it: in a small group a sample costs more.
    """
    if under_way >= min(shards, 2) or (under_way and left < LEAST_GROUP):
        return 0
    return math.ceil(left / max(1, min(min(shards, LAST) - under_way, left // LEAST_GROUP)))


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
    """Work on a plan until the run in the store is whole.

    Args:
        plan: what to do; the same in all processes.
        out: the run folder on a disk that all processes see, or the address of one (`store.shared`).
        shard: where this process begins, and how many shards there are.
        progress: told what goes on, over all processes.
        command: the command line that repeats the run, for the manifest.
        page: writes the page of a whole run into its folder.
        answer: what is made of the whole run and the name of its folder; where the store is no folder, the run holds no arrays.
        lease: seconds after which a process that gives no sign of life loses what it works on.

    Raises:
        RequestError: the store holds another run, or one that is not in shards, or cannot be used.
        StoppedError: the store does not answer, or is full.
    """

    def work(meeting: Meeting, folder: Path, settled: Mapping[str, Any]) -> Callable[[Path], None]:
        peers = Shards(meeting, folder, int(settled["group"]))

        def end(whole: Path) -> None:
            resume = LAYOUT.has(whole)
            local.run(plan, whole, Silent(), command=command, resume=resume, peers=peers.assembler(whole))
            page(whole)

        local.run(plan, folder, SharedProgress(meeting.store, meeting.me, progress), command=command, peers=peers)
        return end

    return meet(
        local.job_of(plan, out, command),
        shard,
        settled={"group": plan.group_size, "samples": len(plan.ids)},
        needed=("records/",),
        work=work,
        answer=lambda folder, name: answer(Run.open(folder), name),
        message=progress.note,
        lease=lease,
    )
