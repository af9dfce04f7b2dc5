"""Makes a benchmark set: part after part, then the card, the metadata and the checksums."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from brinell.engine.answers import settled
from brinell.engine.progress import Progress
from brinell.engine.shard import session
from brinell.runners import provenance
from brinell.runners.loop import Job, carry_out, each_part
from brinell.studies.benchmark import cards
from brinell.studies.benchmark.part import Part
from brinell.studies.benchmark.plan import BenchmarkPlan
from brinell.studies.benchmark.records import LAYOUT, BenchmarkSet, Outcome

IGNORED = ("batch_size", "device", "licence")
"""Settings that change nothing in the rows."""


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
        kept={"seconds": 0.0, "answers": {}, "probes": {}},
    )
    with carry_out(job, resume=resume) as manifest:
        folder = BenchmarkSet(out, plan.parts, plan.form, manifest)

        def make_part(number: int) -> int:
            part = Part(opened, number, progress)
            folder.save_part(number, part.rows, part.samples, part.arrays)
            return sum(sample["outcome"] == Outcome.REACHED for sample in part.samples)

        missing = [number for number in range(plan.parts) if not folder.has_part(number)]
        sizes = {number: len(plan.ids[number * plan.part_size : (number + 1) * plan.part_size]) for number in missing}
        forwards = 2 + plan.attack.cost(plan.facts["classes"])[0] + 2 * len(plan.levels)
        with session(plan.model, plan.device):
            opened = replace(plan, model=settled(plan.model, plan.dataset, manifest, plan.device)) if missing else plan
            LAYOUT.save(out, manifest)
            each_part(manifest, sizes, make_part, progress, model=plan.facts["name"], stage="rlab", forwards=forwards)
        outcomes = folder.samples()["outcome"]
        manifest["counts"] = {outcome: outcomes.count(outcome) for outcome in map(str, Outcome)}
    with LAYOUT.lock(out):
        cards.write(folder)
        folder.save_sums()
    return folder


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
        "training_queries": plan.training_queries,
    }
