"""Makes a benchmark set: all parts, then the card, the metadata and the checksums.

Processes that share a store make blocks, the units in which an interrupted process saves a part. One process then assembles the
set by resuming it with all blocks present.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from brinell.engine.answers import with_logits
from brinell.engine.progress import Progress, SilentProgress
from brinell.engine.shard import predict, session
from brinell.rlab.agent import choose_policy
from brinell.runners import parts, provenance, shard_worker
from brinell.runners.loop import Job, make_parts, manifest_session
from brinell.runners.shard_worker import Shard
from brinell.studies.benchmark import cards
from brinell.studies.benchmark.cards import BenchmarkResult
from brinell.studies.benchmark.part import BenchmarkPart
from brinell.studies.benchmark.plan import BenchmarkPlan, make_plan
from brinell.studies.benchmark.records import BLOCKS, LAYOUT, BenchmarkSet, Block, Outcome
from brinell.studies.kit import Call

IGNORED = ("batch_size", "device", "licence")
"""Settings that do not change the rows."""
BLOCK_SECONDS = 60.0
"""Target time of a block in seconds, if every sample needs the full search."""
MIN_BLOCK = 4
SPEED_SAMPLES = 8
"""Number of clean samples that measure the speed of the model."""


def make_in_folder(
    plan: BenchmarkPlan,
    out: Path,
    progress: Progress,
    *,
    command: str,
    resume: bool = False,
    state: Mapping[str, Any] | None = None,
) -> BenchmarkSet:
    """Make the set in the folder `out`; with `resume`, its missing parts.

    Args and errors are those of `runners.local.run`. `state` contains the probes, costs and block size of other processes.
    """
    with manifest_session(_make_job(plan, out, command, state), resume=resume) as manifest:
        folder = BenchmarkSet(out, plan.parts, plan.form, manifest)

        def make_part(number: int) -> int:
            """Make and save one part; returns the number of examples."""
            span = _part_span(plan, number)
            blocks = [_load_or_make_block(ready_plan, folder, block_span, progress) for block_span in _split(span, block_size)]
            rows = [row for block in blocks for row in block.rows]
            samples = [sample for block in blocks for sample in block.samples]
            folder.save_part(number, rows, samples, {name: array for block in blocks for name, array in block.arrays.items()})
            folder.drop_blocks(span)
            return sum(sample["outcome"] == Outcome.REACHED for sample in samples)

        missing = [number for number in range(plan.parts) if not folder.has_part(number)]
        sizes = {number: len(range(*_part_span(plan, number).indices(len(plan.ids)))) for number in missing}
        with session(plan.model, plan.device):
            ready_plan = _plan_with_logits(plan, manifest) if missing else plan
            block_size = manifest["block"]
            LAYOUT.save(out, manifest)
            make_parts(manifest, sizes, make_part, progress, model=plan.facts["name"], stage="rlab", forwards=_max_forwards(plan))
        outcomes = folder.samples()["outcome"]
        manifest["counts"] = {outcome: outcomes.count(outcome) for outcome in map(str, Outcome)}
    with LAYOUT.lock(out):
        cards.write(folder)
        folder.save_checksums()
    return folder


def make_set(
    plan: BenchmarkPlan, out: Path, progress: Progress, *, command: str, resume: bool, shard: Shard | None = None
) -> BenchmarkResult:
    """Make the set, in shards if `shard` or the store asks for them.

    Blocks are as large as those of a single process, so the rows are the same. A block takes about a minute, so idle processes
    lose little time at the end.

    Args:
        plan: the plan of the set, the same in all processes.
        out: a folder on a disk that all processes share, or the address of a store (`store.shared`).
        progress: reports progress over all processes.
        command: the command line that repeats the set, for the manifest.
        resume: true to resume an existing set.
        shard: number and count of shards; None for a single process.

    Raises:
        RequestError: the store holds something else, or cannot be used.
        StoppedError: the store does not answer, or is full.
    """

    def answer(benchmark: BenchmarkSet, name: str) -> BenchmarkResult:
        """Result of a set, whose arrays are missing at an address."""
        return BenchmarkResult(folder=name, **cards.figures(benchmark))

    if (shard := shard_worker.choose_shard(out, shard, resume=resume, noun=LAYOUT.noun)) is None:
        return answer(make_in_folder(plan, out, progress, command=command, resume=resume), str(out))

    def work(makers: parts.PartMaker) -> Callable[[Path], None]:
        """Make blocks until none is left; returns the function that assembles the set from them."""
        folder = BenchmarkSet(makers.folder, plan.parts, plan.form, {})

        def probe_model() -> dict[str, Any]:
            """Find out what kind of answers the model gives."""
            state: dict[str, Any] = {"answers": {}, "probes": {}, "block": 0}
            _plan_with_logits(plan, state)
            return state

        with session(plan.model, plan.device):
            state = makers.make_once("model", probe_model)
            ready_plan = _plan_with_logits(plan, state)

            def block_part(span: slice) -> parts.Part:
                """The part of the sharded run that makes a block."""

                def make_block() -> dict[str, Any]:
                    """Make and save one block of samples."""
                    start, part = time.perf_counter(), BenchmarkPart(ready_plan, span, progress)
                    folder.save_block(span, Block(part.rows, part.samples, part.arrays))
                    reached = sum(sample["outcome"] == Outcome.REACHED for sample in part.samples)
                    return {"samples": len(part.samples), "reached": reached, "seconds": time.perf_counter() - start}

                file = folder.block_file(span)
                return parts.Part(name=file.stem, files=(str(file.relative_to(makers.folder)),), make=make_block)

            samples = remaining = len(plan.ids)
            fooled = 0

            def note_block(result: Mapping[str, Any]) -> None:
                """Report the progress after a block."""
                nonlocal remaining, fooled
                remaining, fooled = remaining - result["samples"], fooled + result["reached"]
                progress.update_open(remaining, samples - fooled)

            progress.stage(plan.facts["name"], "rlab", remaining, remaining * _max_forwards(plan))
            results = makers.make([block_part(block) for block in _block_spans(plan, state["block"])], note_block)

        def finish(path: Path) -> None:
            """Assemble the set in a folder that contains all blocks."""
            seconds = sum(result["seconds"] for result in results.values())
            make_in_folder(plan, path, SilentProgress(), command=command, resume=True, state=state | {"seconds": seconds})
            shutil.rmtree(path / BLOCKS, ignore_errors=True)  # blocks of parts that were complete before

        return finish

    def summarise(folder: Path, name: str) -> BenchmarkResult:
        """Result of a finished folder."""
        return answer(BenchmarkSet(folder, plan.parts, plan.form, LAYOUT.open(folder)), name)

    job = _make_job(plan, out, command)
    return parts.make_in_shards(job, shard, work, needed_files=("data/", "samples/"), answer=summarise, message=progress.note)


def _make_job(plan: BenchmarkPlan, out: Path, command: str, state: Mapping[str, Any] | None = None) -> Job:
    """The job of the loop over parts."""
    return Job(
        LAYOUT,
        out,
        plan.request,
        about=_manifest_entries(plan),
        inputs="the data, the weights, the policy, a distortion",
        device=plan.device,
        command=command,
        ignored=IGNORED,
        accumulated=state or {"seconds": 0.0, "answers": {}, "probes": {}, "block": 0},
    )


def _max_forwards(plan: BenchmarkPlan) -> int:
    """Largest number of forwards for a sample."""
    return 2 + plan.attack.cost(plan.facts["classes"])[0] + 2 * len(plan.levels)


def _block_spans(plan: BenchmarkPlan, size: int) -> Iterator[slice]:
    for number in range(plan.parts):
        yield from _split(_part_span(plan, number), size)


def _part_span(plan: BenchmarkPlan, number: int) -> slice:
    return slice(number * plan.part_size, min((number + 1) * plan.part_size, len(plan.ids)))


def _split(span: slice, size: int) -> Iterator[slice]:
    """Divide a slice into slices of at most `size` samples."""
    for start in range(span.start, span.stop, size):
        yield slice(start, min(start + size, span.stop))


def _load_or_make_block(plan: BenchmarkPlan, folder: BenchmarkSet, span: slice, progress: Progress) -> Block:
    """Load a block of samples, or make and save it. A block that is a full part is not saved, since the part is."""
    if (stored := folder.load_block(span)) is not None:
        return stored
    part = BenchmarkPart(plan, span, progress)
    block = Block(part.rows, part.samples, part.arrays)
    if span != _part_span(plan, span.start // plan.part_size):
        folder.save_block(span, block)
    return block


def _plan_with_logits(plan: BenchmarkPlan, manifest: dict[str, Any]) -> BenchmarkPlan:
    """Wrap the model to answer logits, and set the block size in the manifest if it has none.

    A block takes about BLOCK_SECONDS, judged by the time of a few clean predictions. The size is fixed at the start, since a
    different batch size may change the last digit of a float.
    """
    name, start = plan.facts["name"], time.perf_counter()
    prior_forwards = manifest["probes"].get(name, {}).get("forwards", 0)
    if plan.task is None:
        model = with_logits(plan.model, plan.dataset, manifest, plan.device)
    else:  # the plan looked at one answer
        model = plan.model
        manifest["probes"].setdefault(name, {"forwards": 1, "backwards": 0})
        prior_forwards = manifest["probes"][name]["forwards"]
    if not manifest["block"]:
        probe = manifest["probes"].setdefault(name, {"forwards": 0, "backwards": 0})
        if probe["forwards"] == prior_forwards:  # the model declares the kind of its answers, so no probe ran
            x = plan.dataset.load(plan.ids[:SPEED_SAMPLES].tolist()).to(plan.device)
            probe["forwards"] += len(x)
            start = time.perf_counter()
            predict(model, x, plan.request.batch_size)
        forward_seconds = (time.perf_counter() - start) / max(1, probe["forwards"] - prior_forwards)
        sample_seconds = forward_seconds * plan.attack.cost(plan.facts["classes"])[0]
        manifest["block"] = int(min(plan.part_size, max(MIN_BLOCK, BLOCK_SECONDS / max(sample_seconds, 1e-9))))
    return replace(plan, model=model)


def _manifest_entries(plan: BenchmarkPlan) -> dict[str, Any]:
    return {
        "cell": plan.cell,
        "parts": plan.parts,
        "levels": list(plan.levels),
        "criterion": plan.criterion_settings,
        "task": plan.task,
        "eps": plan.eps,
        "data": provenance.data_facts(plan.request.data, plan.dataset, plan.data_digest, len(plan.ids), plan.selection.method),
        "model": {"spec": plan.request.model, **plan.facts},
        "grid": {"patch": list(plan.grid.patch), "stride": list(plan.grid.steps), "lattice": list(plan.grid.lattice)},
        "policy": choose_policy(plan.request.policy, plan.dataset.domain.kind)._asdict(),
        "training_queries": plan.training_queries,
    }


def carry_out_call(call: Call) -> BenchmarkResult:
    """Make the benchmark set of a call.

    Raises:
        RequestError: the request does not fit.
        StoppedError: the folder cannot be written.
    """
    plan = make_plan(call.request, dataset=call.dataset(), model=call.model())
    for sample, reason in plan.unreadable.items():
        call.progress.warn(f"sample {sample} is left out: {reason}")
    call.say_samples(plan)
    folder = call.folder(plan.request.data)
    return make_set(plan, folder, call.progress, command=call.command, resume=call.resume, shard=call.shard)


def rewrite(folder: Path) -> None:
    """Write the card, the metadata and the checksums of a set again, from its records."""
    benchmark = BenchmarkSet.open(folder)
    cards.write(benchmark)
    benchmark.save_checksums()


def open_result(folder: Path) -> BenchmarkResult:
    """The result of a benchmark set, from its records alone."""
    return BenchmarkResult(folder=str(folder), **cards.figures(BenchmarkSet.open(folder)))
