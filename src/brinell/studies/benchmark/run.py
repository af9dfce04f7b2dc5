"""Makes a benchmark set: part after part, then the card, the metadata and the checksums.

Several processes that meet in a store make blocks, which are what a process that is stopped keeps of a part. Who puts the set
together resumes it where all blocks are there.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from brinell.engine.answers import settled
from brinell.engine.progress import Progress, Silent
from brinell.engine.shard import predict, session
from brinell.rlab.agent import chosen
from brinell.runners import meeting, parts, provenance
from brinell.runners.loop import Job, carry_out, each_part
from brinell.runners.meeting import Shard
from brinell.studies.benchmark import cards
from brinell.studies.benchmark.cards import BenchmarkResult
from brinell.studies.benchmark.part import Part
from brinell.studies.benchmark.plan import BenchmarkPlan, make_plan
from brinell.studies.benchmark.records import BLOCKS, LAYOUT, BenchmarkSet, Block, Outcome
from brinell.studies.kit import Call

IGNORED = ("batch_size", "device", "licence")
"""Settings that change nothing in the rows."""
BLOCK_SECONDS = 60.0
"""About how long a block of samples may take, if each is searched to the end."""
LEAST_BLOCK = 4
ASKED = 8
"""Clean samples by which the speed of the model is told."""


Answer = TypeVar("Answer")


def make(
    plan: BenchmarkPlan,
    out: Path,
    progress: Progress,
    *,
    command: str,
    resume: bool = False,
    begun: Mapping[str, Any] | None = None,
) -> BenchmarkSet:
    """Make the set in the folder `out`, or with `resume` what is missing of it.

    Args and errors are those of `runners.local.run`; `begun` is what others settled and spent before.
    """
    with carry_out(_job(plan, out, command, begun), resume=resume) as manifest:
        folder = BenchmarkSet(out, plan.parts, plan.form, manifest)

        def make_part(number: int) -> int:
            at = _places(plan, number)
            blocks = [_block(opened, folder, slice(start, min(start + block, at.stop)), progress) for start in _starts(at, block)]
            rows = [row for one in blocks for row in one.rows]
            samples = [sample for one in blocks for sample in one.samples]
            folder.save_part(number, rows, samples, {name: array for made in blocks for name, array in made.arrays.items()})
            folder.drop_blocks(at)
            return sum(sample["outcome"] == Outcome.REACHED for sample in samples)

        missing = [number for number in range(plan.parts) if not folder.has_part(number)]
        sizes = {number: len(range(*_places(plan, number).indices(len(plan.ids)))) for number in missing}
        with session(plan.model, plan.device):
            opened = _opened(plan, manifest) if missing else plan
            block = manifest["block"]
            LAYOUT.save(out, manifest)
            each_part(manifest, sizes, make_part, progress, model=plan.facts["name"], stage="rlab", forwards=_forwards(plan))
        outcomes = folder.samples()["outcome"]
        manifest["counts"] = {outcome: outcomes.count(outcome) for outcome in map(str, Outcome)}
    with LAYOUT.lock(out):
        cards.write(folder)
        folder.save_sums()
    return folder


def work_on(
    plan: BenchmarkPlan,
    out: Path,
    progress: Progress,
    *,
    command: str,
    resume: bool,
    shard: Shard | None,
    answer: Callable[[BenchmarkSet, str], Answer],
) -> Answer:
    """Make the set, together with the processes that meet in `out` where there is a shard.

    Blocks are as large as those of one process, so that the rows are the same ones. They are a minute of work each, so that where
    there are more processes than blocks no time to speak of is lost.

    Args:
        plan: what is made, the same in all processes.
        out: the folder on a disk that all processes see, or the address of one (`store.shared`).
        progress: told what goes on, over all processes.
        command: the command line that repeats it, for the manifest.
        resume: whether to go on with what is there.
        shard: where this process begins, and how many shards there are; none works alone, if `out` is a folder.
        answer: what is made of the whole set and the name of its folder; where the store is no folder, it holds no arrays.

    Raises:
        RequestError: the store holds something else, or cannot be used.
        StoppedError: the store does not answer, or is full.
    """
    if (shard := meeting.chosen(out, shard, resume=resume, what=LAYOUT.what)) is None:
        return answer(make(plan, out, progress, command=command, resume=resume), str(out))

    def work(makers: parts.Makers) -> Callable[[Path], None]:
        folder = BenchmarkSet(makers.folder, plan.parts, plan.form, {})

        def settle() -> dict[str, Any]:
            found: dict[str, Any] = {"answers": {}, "probes": {}, "block": 0}
            _opened(plan, found)
            return found

        with session(plan.model, plan.device):
            begun = makers.once("model", settle)
            opened = _opened(plan, begun)

            def part_of(at: slice) -> parts.Part:
                def make_block() -> dict[str, Any]:
                    started, made = time.perf_counter(), Part(opened, at, progress)
                    folder.save_block(at, Block(made.rows, made.samples, made.arrays))
                    reached = sum(sample["outcome"] == Outcome.REACHED for sample in made.samples)
                    return {"samples": len(made.samples), "reached": reached, "seconds": time.perf_counter() - started}

                file = folder.block_file(at)
                return parts.Part(name=file.stem, files=(str(file.relative_to(makers.folder)),), make=make_block)

            samples = left = len(plan.ids)
            fooled = 0

            def done(told: Mapping[str, Any]) -> None:
                nonlocal left, fooled
                left, fooled = left - told["samples"], fooled + told["reached"]
                progress.open(left, samples - fooled)

            progress.stage(plan.facts["name"], "rlab", left, left * _forwards(plan))
            told = makers.make([part_of(at) for at in _blocks(plan, begun["block"])], done)

        def end(whole: Path) -> None:
            seconds = sum(one["seconds"] for one in told.values())
            make(plan, whole, Silent(), command=command, resume=True, begun=begun | {"seconds": seconds})
            shutil.rmtree(whole / BLOCKS, ignore_errors=True)  # those of parts that were whole before

        return end

    def answered(folder: Path, name: str) -> Answer:
        return answer(BenchmarkSet(folder, plan.parts, plan.form, LAYOUT.open(folder)), name)

    job = _job(plan, out, command)
    return parts.together(job, shard, work, needed=("data/", "samples/"), answer=answered, message=progress.note)


def _job(plan: BenchmarkPlan, out: Path, command: str, begun: Mapping[str, Any] | None = None) -> Job:
    return Job(
        LAYOUT,
        out,
        plan.request,
        about=_about(plan),
        inputs="the data, the weights, the policy, a distortion",
        device=plan.device,
        command=command,
        ignored=IGNORED,
        kept=begun or {"seconds": 0.0, "answers": {}, "probes": {}, "block": 0},
    )


def _forwards(plan: BenchmarkPlan) -> int:
    """The most forwards that a sample costs."""
    return 2 + plan.attack.cost(plan.facts["classes"])[0] + 2 * len(plan.levels)


def _blocks(plan: BenchmarkPlan, block: int) -> Iterator[slice]:
    """The blocks of all parts, as places of their samples."""
    for at in (_places(plan, number) for number in range(plan.parts)):
        for start in _starts(at, block):
            yield slice(start, min(start + block, at.stop))


def _places(plan: BenchmarkPlan, number: int) -> slice:
    """The places of the samples of a part."""
    return slice(number * plan.part_size, min((number + 1) * plan.part_size, len(plan.ids)))


def _starts(at: slice, block: int) -> range:
    return range(at.start, at.stop, block)


def _block(plan: BenchmarkPlan, folder: BenchmarkSet, at: slice, progress: Progress) -> Block:
    """A block of samples, as it is kept or made now; where a part is one block, the part keeps it."""
    if (kept := folder.block(at)) is not None:
        return kept
    part = Part(plan, at, progress)
    made = Block(part.rows, part.samples, part.arrays)
    if at != _places(plan, at.start // plan.part_size):
        folder.save_block(at, made)
    return made


def _opened(plan: BenchmarkPlan, manifest: dict[str, Any]) -> BenchmarkPlan:
    """The plan with its model's answers as logits; the manifest says from then on how many samples are made together.

    So many that a kill costs BLOCK_SECONDS or so, by how long the model takes for a few clean samples that it is asked before.
    The number is settled once: in other company a sample's floats may differ in their last digit.
    """
    name, started = plan.facts["name"], time.perf_counter()
    before = manifest["probes"].get(name, {}).get("forwards", 0)
    model = settled(plan.model, plan.dataset, manifest, plan.device)
    if not manifest["block"]:
        spent = manifest["probes"].setdefault(name, {"forwards": 0, "backwards": 0})
        if spent["forwards"] == before:  # it says itself what its answers are, and so was not asked
            x = plan.dataset.load(plan.ids[:ASKED].tolist()).to(plan.device)
            spent["forwards"] += len(x)
            started = time.perf_counter()
            predict(model, x, plan.request.batch_size)
        each = (time.perf_counter() - started) / max(1, spent["forwards"] - before)
        whole = each * plan.attack.cost(plan.facts["classes"])[0]
        manifest["block"] = int(min(plan.part_size, max(LEAST_BLOCK, BLOCK_SECONDS / max(whole, 1e-9))))
    return replace(plan, model=model)


def _about(plan: BenchmarkPlan) -> dict[str, Any]:
    return {
        "cell": plan.cell,
        "parts": plan.parts,
        "levels": list(plan.levels),
        "criterion": plan.criterion_settings,
        "eps": plan.eps,
        "data": provenance.data(plan.request.data, plan.dataset, plan.data_digest, len(plan.ids), plan.selection.how),
        "model": {"spec": plan.request.model, **plan.facts},
        "grid": {"patch": list(plan.grid.patch), "stride": list(plan.grid.steps), "lattice": list(plan.grid.lattice)},
        "policy": chosen(plan.request.policy, plan.dataset.domain.kind)._asdict(),
        "training_queries": plan.training_queries,
    }


def carry_out_call(call: Call) -> BenchmarkResult:
    """Make the benchmark set that a call asks for.

    Raises:
        RequestError: what cannot be carried out.
        StoppedError: the folder cannot be written.
    """
    plan = make_plan(call.request, dataset=call.dataset(), model=call.model())
    for sample, why in plan.unreadable.items():
        call.progress.warn(f"sample {sample} is left out: {why}")
    call.say_samples(plan)
    folder = call.folder(plan.request.data)
    return make_set(plan, folder, call.progress, command=call.command, resume=call.resume, shard=call.shard)


def make_set(
    plan: BenchmarkPlan, out: Path, progress: Progress, *, command: str, resume: bool, shard: Shard | None = None
) -> BenchmarkResult:
    """Make a set that is planned, alone or with others, and say what it holds; arguments and errors as of `work_on`."""

    def answer(made: BenchmarkSet, name: str) -> BenchmarkResult:
        return BenchmarkResult(folder=name, **cards.figures(made))

    return work_on(plan, out, progress, command=command, resume=resume, shard=shard, answer=answer)


def open_result(folder: Path) -> BenchmarkResult:
    """What a benchmark set says, from its records alone."""
    return BenchmarkResult(folder=str(folder), **cards.figures(BenchmarkSet.open(folder)))
