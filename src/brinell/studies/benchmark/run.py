"""Makes a benchmark set: all parts, block by block, then the card, the metadata and the checksums."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from brinell.engine import provenance
from brinell.engine.answers import with_logits
from brinell.engine.group_attack import predict, session
from brinell.engine.job import Job, manifest_session
from brinell.engine.progress import Progress
from brinell.rlab.agent import choose_policy
from brinell.studies.benchmark import cards
from brinell.studies.benchmark.cards import BenchmarkResult
from brinell.studies.benchmark.part import BenchmarkPart
from brinell.studies.benchmark.plan import BenchmarkPlan, make_plan
from brinell.studies.benchmark.records import LAYOUT, BenchmarkSet, Block, Outcome
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
) -> BenchmarkSet:
    """Make the set in the folder `out`; with `resume`, its missing parts.

    Args and errors are those of `engine.audit.run`.
    """
    with manifest_session(_make_job(plan, out, command), resume=resume) as manifest:
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
            start, remaining, reached = time.perf_counter(), sum(sizes.values()), 0
            samples = remaining
            progress.stage(plan.facts["name"], "rlab", samples, samples * _max_forwards(plan))
            for number, size in sizes.items():
                reached += make_part(number)
                remaining -= size
                progress.update_open(remaining, samples - reached)
            manifest["seconds"] += time.perf_counter() - start
        outcomes = folder.samples()["outcome"]
        manifest["counts"] = {outcome: outcomes.count(outcome) for outcome in map(str, Outcome)}
    with LAYOUT.lock(out):
        cards.write(folder)
        folder.save_checksums()
    return folder


def _make_job(plan: BenchmarkPlan, out: Path, command: str) -> Job:
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
        accumulated={"seconds": 0.0, "answers": {}, "probes": {}, "block": 0},
    )


def _max_forwards(plan: BenchmarkPlan) -> int:
    """Largest number of forwards for a sample."""
    return 2 + plan.attack.cost(plan.facts["classes"])[0] + 2 * len(plan.levels)


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
    benchmark = make_in_folder(plan, folder, call.progress, command=call.command, resume=call.resume)
    return BenchmarkResult(folder=str(folder), **cards.figures(benchmark))


def rewrite(folder: Path) -> None:
    """Write the card, the metadata and the checksums of a set again, from its records."""
    benchmark = BenchmarkSet.open(folder)
    cards.write(benchmark)
    benchmark.save_checksums()


def open_result(folder: Path) -> BenchmarkResult:
    """The result of a benchmark set, from its records alone."""
    return BenchmarkResult(folder=str(folder), **cards.figures(BenchmarkSet.open(folder)))
