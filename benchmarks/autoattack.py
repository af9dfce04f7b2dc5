"""Our cascades compared with the reference AutoAttack: same model, samples, budget, batch size and
threads.

    python benchmarks/autoattack.py --reference CHECKOUT [--cascades standard fast] [--subjects ...]
    [--samples 500]

CHECKOUT is a working tree of the reference implementation; Brinell imports it from there. Both
sides judge the first `samples` test images, those that are wrong from the start included. Forwards
and backwards are counted by a hook on the module, for both alike. The reference runs with the first
of `--seeds`; `--keep` names a folder that keeps its verdicts and times.
"""

import contextlib
import io
import json
import re
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import measure
import numpy as np
from torch import Tensor, nn

import brinell
from brinell.datasets._memory import from_arrays
from brinell.models._torch_model import TorchModel
from brinell.store.run import Run

GROUP = "reference"
RUNS = {"--reference REFERENCE": "--subjects cnn4_pgd --samples 10"}


class Stage(NamedTuple):
    """One attack of a cascade."""

    name: str
    accuracy: float
    """Share of all samples that hold after it."""
    forwards: int
    backwards: int
    seconds: float
    """Of the processor (the reference), or of the wall as the records have it (ours)."""


@dataclass(frozen=True)
class Verdict:
    """Robust samples of one implementation, its passes and seconds."""

    robust: np.ndarray
    """(n,) bool: samples that hold."""
    forwards: int
    backwards: int
    cpu: float
    stages: list[Stage]


class Watch:
    """Stands in for the reference's logger: what the passes and the time came to after each of its
    attacks.
    """

    LINE = re.compile(r"robust accuracy after (\S+): ([\d.]+)%")

    def __init__(self, passes: measure.Passes) -> None:
        self.passes, self.stages, self.before = passes, [], (0, 0, time.process_time())

    def log(self, line: str) -> None:
        """Takes one line of the reference's log."""
        if match := self.LINE.match(line):
            counters = (self.passes.forwards, self.passes.backwards, time.process_time())
            costs = [end - start for end, start in zip(counters, self.before, strict=True)]
            self.stages.append(Stage(match[1], float(match[2]) / 100, *costs))
            self.before = counters


def reference(
    module: nn.Module, x: Tensor, y: Tensor, norm: str, eps: float, options: Namespace
) -> Verdict:
    """The reference's standard version."""
    from autoattack import AutoAttack

    settings = {
        "norm": {"linf": "Linf", "l2": "L2", "l1": "L1"}[norm],
        "seed": options.seeds[0],
        "device": "cpu",
        "verbose": True,
    }
    with measure.counting(module) as passes, contextlib.redirect_stdout(io.StringIO()):
        attack = AutoAttack(module, eps=eps, **settings)
        attack.logger = watch = Watch(passes)
        adversarial, seconds = measure.timed(
            lambda: attack.run_standard_evaluation(x, y, bs=options.batch_size)
        )
    counts = passes.forwards, passes.backwards
    return Verdict(measure.is_right(module, adversarial, y).numpy(), *counts, seconds, watch.stages)


def cached_verdict(folder: Path | None, name: str, make: Callable[[], Verdict]) -> Verdict:
    """The reference's verdict of an earlier run with the same settings, where there is one: it
    costs hours and stays the same.
    """
    file = folder / f"{name}.json" if folder else None
    if file is not None and file.is_file():
        stored = json.loads(file.read_text())
        return Verdict(
            **stored
            | {
                "robust": np.array(stored["robust"]),
                "stages": [Stage(*stage) for stage in stored["stages"]],
            }
        )
    verdict = make()
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(verdict) | {"robust": verdict.robust.tolist()}))
    return verdict


def run_cascade(
    module: nn.Module, x: Tensor, y: Tensor, cascade: str | tuple[str, ...], **settings
) -> Verdict:
    """One of our cascades, records and all; `settings` go to `brinell.audit`."""
    data = from_arrays(x, y)
    model = TorchModel(module, data.domain, name="module")
    with tempfile.TemporaryDirectory() as folder, measure.counting(module) as passes:
        settings = {
            "attack": cascade,
            "samples": len(y),
            "device": "cpu",
            "out": Path(folder) / "run",
        } | settings
        _, seconds = measure.timed(lambda: brinell.audit(model, data, **settings))
        run = Run.open(Path(folder) / "run")
        rows = run.rows
    broken = measure.is_broken(rows)
    robust, stages = np.ones(len(y), dtype=bool), []
    for stage in ["clean", *(record["name"] for record in run.manifest["stages"])]:
        mask = rows.attack == stage
        robust[rows.sample_id[mask & broken]] = False
        costs = (
            column[mask].sum().item() for column in (rows.forwards, rows.backwards, rows.seconds)
        )
        stages.append(Stage(stage, float(robust.mean()), *costs))
    return Verdict(robust, passes.forwards, passes.backwards, seconds, stages)


def main() -> None:
    """The comparison on every network."""
    lists = {"subjects": ["cnn4_pgd", "resnet4b"], "cascades": ["standard", "fast"], "seeds": [0]}
    options = measure.arguments(
        __doc__, reference=str, **lists, norm="linf", eps="", keep=Path, samples=500, batch_size=250
    )
    if not options.reference:
        raise SystemExit("name a working tree of the reference AutoAttack: --reference CHECKOUT")
    sys.path.insert(0, options.reference)
    columns = (
        "network,eps,cascade,seed,robust,robust for ours alone,robust for the "
        "reference alone,forwards,backwards,cpu s,time"
    )
    table = measure.Table(
        "Our cascades beside the reference AutoAttack",
        columns,
        "Time is ours over the reference's.",
    )
    steps = []
    for name in options.subjects:
        subject = measure.subject(name)
        text = options.eps or subject.eps_text
        module, (x, y) = subject.module(), subject.first(options.samples)
        label = f"{name}-{options.norm}-{text.replace('/', '_')}-{options.samples}-{options.batch_size}-{options.seeds[0]}"
        run = (module, x, y, options.norm, measure.parse_eps(text), options)
        peer = cached_verdict(options.keep, label, lambda run=run: reference(*run))
        costs = (peer.forwards, peer.backwards, f"{peer.cpu:.1f}", 1)
        table.add(
            subject.name,
            text,
            "reference",
            options.seeds[0],
            int(peer.robust.sum()),
            "",
            "",
            *costs,
        )
        steps += [(subject.name, text, "reference", stage) for stage in peer.stages]
        for cascade, seed in product(options.cascades, options.seeds):
            settings = {
                "norm": options.norm,
                "eps": text,
                "seed": seed,
                "batch_size": options.batch_size,
            }
            verdict = run_cascade(module, x, y, cascade, **settings)
            differences = (
                np.flatnonzero(verdict.robust & ~peer.robust).tolist(),
                int((peer.robust & ~verdict.robust).sum()),
            )
            passes = [
                f"{count} (1/{peer_count / max(1, count):.1f})"
                for count, peer_count in (
                    (verdict.forwards, peer.forwards),
                    (verdict.backwards, peer.backwards),
                )
            ]
            seconds = (f"{verdict.cpu:.1f}", f"{verdict.cpu / peer.cpu:.3f}")
            table.add(
                subject.name,
                text,
                cascade,
                seed,
                int(verdict.robust.sum()),
                *differences,
                *passes,
                *seconds,
            )
            steps += [
                (subject.name, text, f"{cascade}, seed {seed}", stage) for stage in verdict.stages
            ]
    stages = measure.Table(
        "Stage by stage", "network,eps,cascade,stage,accuracy after,forwards,backwards,s"
    )
    for *head, stage in steps:
        stages.add(
            *head,
            stage.name,
            f"{stage.accuracy:.2%}",
            stage.forwards,
            stage.backwards,
            f"{stage.seconds:.1f}",
        )


if __name__ == "__main__":
    main()
