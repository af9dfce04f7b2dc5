"""Makes a benchmark set: part after part, then the card, the metadata and the checksums."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from brinell.engine.answers import settled
from brinell.engine.progress import Progress
from brinell.engine.shard import predict, session
from brinell.rlab.agent import chosen
from brinell.runners import provenance
from brinell.runners.loop import Job, carry_out, each_part
from brinell.studies.benchmark import cards
from brinell.studies.benchmark.part import Part
from brinell.studies.benchmark.plan import BenchmarkPlan
from brinell.studies.benchmark.records import LAYOUT, BenchmarkSet, Block, Outcome

IGNORED = ("batch_size", "device", "licence")
"""Settings that change nothing in the rows."""
BLOCK_SECONDS = 60.0
"""About how long a block of samples may take, if each is searched to the end."""
LEAST_BLOCK = 4
ASKED = 8
"""Clean samples by which the speed of the model is told."""


def make(plan: BenchmarkPlan, out: Path, progress: Progress, *, command: str, resume: bool = False) -> BenchmarkSet:
    """Make the set in the folder `out`, or with `resume` what is missing of it.

    Args and errors are those of `runners.local.run`.
    """
    inputs = "the data, the weights, the policy, a distortion"
    job = Job(
        LAYOUT,
        out,
        plan.request,
        about=_about(plan),
        inputs=inputs,
        device=plan.device,
        command=command,
        ignored=IGNORED,
        kept={"seconds": 0.0, "answers": {}, "probes": {}, "block": 0},
    )
    with carry_out(job, resume=resume) as manifest:
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
        forwards = 2 + plan.attack.cost(plan.facts["classes"])[0] + 2 * len(plan.levels)
        with session(plan.model, plan.device):
            opened = _opened(plan, manifest) if missing else plan
            block = manifest["block"]
            LAYOUT.save(out, manifest)
            each_part(manifest, sizes, make_part, progress, model=plan.facts["name"], stage="rlab", forwards=forwards)
        outcomes = folder.samples()["outcome"]
        manifest["counts"] = {outcome: outcomes.count(outcome) for outcome in map(str, Outcome)}
    with LAYOUT.lock(out):
        cards.write(folder)
        folder.save_sums()
    return folder


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
