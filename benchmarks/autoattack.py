"""Our cascades compared with the reference AutoAttack: same model, samples, budget, batch size and threads.

    python benchmarks/autoattack.py --reference CHECKOUT [--cascades standard fast] [--subjects ...] [--samples 500]

CHECKOUT is a working tree of the reference implementation; Brinell imports it from there. Both sides judge the
first `samples` test images, those that are wrong from the start included. Forwards and backwards are counted by a
hook on the module, for both alike.
"""

import argparse
import contextlib
import io
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import measure
import numpy as np
import torch

import brinell
from brinell.core.record import BROKEN
from brinell.datasets._memory import ArrayDataset
from brinell.engine.eps_grid import parse_eps
from brinell.models._torch_model import TorchModel
from brinell.store.run import Run


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
    signs: tuple[str, ...] = ()
    """Codes of the warnings that our run gave."""


def first_images(subject: measure.Subject, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first n test images with their labels, right or wrong."""
    with np.load(measure.SHARED / subject.data) as arrays:
        images, labels = arrays["images"][:n], arrays["labels"][:n]
    x = torch.from_numpy(images).reshape(n, *images.shape[1:3], -1).movedim(-1, 1).float().div(255).contiguous()
    return x, torch.from_numpy(labels.astype(np.int64))


class Watch:
    """Stands in for the reference's logger: what the passes and the time came to after each of its attacks."""

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


def reference(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, norm: str, eps: float, options) -> Verdict:
    """The reference's standard version."""
    from autoattack import AutoAttack

    with measure.counting(module) as passes, contextlib.redirect_stdout(io.StringIO()):
        began = time.process_time()
        attack = AutoAttack(
            module, norm={"linf": "Linf", "l2": "L2"}[norm], eps=eps, seed=options.seeds[0], device="cpu", verbose=True
        )
        attack.logger = watch = Watch(passes)
        adversarial = attack.run_standard_evaluation(x, y, bs=options.batch_size)
        seconds = time.process_time() - began
    with torch.no_grad():
        robust = torch.cat([module(part) for part in adversarial.split(256)]).argmax(1) == y
    return Verdict(robust.numpy(), passes.forwards, passes.backwards, seconds, watch.stages)


def cached_verdict(folder: Path | None, name: str, make: Callable[[], Verdict]) -> Verdict:
    """The reference's verdict of an earlier run with the same settings, where there is one: it costs hours and stays the same."""
    file = folder / f"{name}.json" if folder else None
    if file is not None and file.is_file():
        stored = json.loads(file.read_text())
        stages = [Stage(*stage) for stage in stored["stages"]]
        return Verdict(np.array(stored["robust"], dtype=bool), stored["forwards"], stored["backwards"], stored["cpu"], stages)
    verdict = make()
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(verdict) | {"robust": verdict.robust.tolist()}))
    return verdict


def run_cascade(
    module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, norm: str, eps: str, cascade: str, seed: int, options, **settings
) -> Verdict:
    """One of our cascades, records and all; `settings` go to `brinell.audit`."""
    data = ArrayDataset(x, y)
    model = TorchModel(module, data.domain, name="module")
    with tempfile.TemporaryDirectory() as folder, measure.counting(module) as passes:
        began = time.process_time()
        brinell.audit(
            model, data, norm=norm, eps=eps, attack=cascade, samples=len(y), seed=seed, batch_size=options.batch_size,
            device="cpu", out=Path(folder) / "run", **settings,
        )  # fmt: skip
        cpu_seconds = time.process_time() - began
        run = Run.open(Path(folder) / "run")
        rows = run.records()
    broken = np.isin(rows.outcome.astype(str), [str(outcome) for outcome in BROKEN])
    robust, stages = np.ones(len(y), dtype=bool), []
    for stage in ["clean", *(record["name"] for record in run.manifest["stages"])]:
        mask = rows.attack == stage
        robust[rows.sample_id[mask & broken]] = False
        forwards, backwards, seconds = (column[mask].sum().item() for column in (rows.forwards, rows.backwards, rows.seconds))
        stages.append(Stage(stage, float(robust.mean()), forwards, backwards, seconds))
    signs = sorted({warning["code"] for warning in run.manifest.get("warnings", [])})
    return Verdict(robust, passes.forwards, passes.backwards, cpu_seconds, stages, tuple(signs))


def main() -> None:
    """The comparison on every network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, required=True, help="working tree of the reference AutoAttack")
    parser.add_argument("--subjects", nargs="+", default=["cnn4_pgd", "resnet4b"])
    parser.add_argument("--cascades", nargs="+", default=["standard", "fast"])
    parser.add_argument("--norm", default="linf")
    parser.add_argument("--eps", default=None, help="default: each network's own")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="ours; the reference runs with the first")
    parser.add_argument("--keep", type=Path, default=None, help="folder that keeps the reference's verdicts, and their times")
    for name, default in (("samples", 500), ("batch-size", 250), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sys.path.insert(0, str(options.reference))
    overrides = [f"--{name} {value}" for name, value in (("norm", options.norm), ("eps", options.eps)) if value]
    command = " ".join(
        ["python benchmarks/autoattack.py --reference CHECKOUT --subjects", *options.subjects, "--cascades", *options.cascades]
        + [*overrides, f"--samples {options.samples} --seeds", *map(str, options.seeds)]
    )
    columns = "network,eps,cascade,seed,robust,robust for ours alone,robust for the reference alone"
    columns += ",forwards,backwards,cpu s,time"
    table = measure.Table(
        "Our cascades beside the reference AutoAttack", command, columns.split(","), "Time is ours over the reference's."
    )
    steps = []
    for name in options.subjects:
        subject = measure.subject(name)
        text = options.eps or subject.eps_text
        eps = float(parse_eps(text).values[-1])
        module, (x, y) = subject.module(), first_images(subject, options.samples)
        label = f"{name}-{options.norm}-{text.replace('/', '_')}-{options.samples}-{options.batch_size}-{options.seeds[0]}"
        reference_verdict = cached_verdict(options.keep, label, lambda: reference(module, x, y, options.norm, eps, options))  # noqa: B023
        robust = int(reference_verdict.robust.sum())
        table.add(
            subject.name,
            text,
            "reference",
            options.seeds[0],
            robust,
            "",
            "",
            reference_verdict.forwards,
            reference_verdict.backwards,
            f"{reference_verdict.cpu:.1f}",
            1,
        )
        steps += [(subject.name, text, "reference", stage) for stage in reference_verdict.stages]
        for cascade, seed in product(options.cascades, options.seeds):
            verdict = run_cascade(module, x, y, options.norm, text, cascade, seed, options)
            table.add(
                subject.name,
                text,
                cascade,
                seed,
                int(verdict.robust.sum()),
                np.flatnonzero(verdict.robust & ~reference_verdict.robust).tolist(),
                int((reference_verdict.robust & ~verdict.robust).sum()),
                f"{verdict.forwards} (1/{reference_verdict.forwards / verdict.forwards:.1f})",
                f"{verdict.backwards} (1/{reference_verdict.backwards / max(1, verdict.backwards):.1f})",
                f"{verdict.cpu:.1f}",
                f"{verdict.cpu / reference_verdict.cpu:.3f}",
            )
            steps += [(subject.name, text, f"{cascade}, seed {seed}", stage) for stage in verdict.stages]
    after = ("network", "eps", "cascade", "stage", "accuracy after", "forwards", "backwards", "s")
    stages = measure.Table("Stage by stage", command, after)
    for network, budget, cascade, stage in steps:
        cells = (stage.name, f"{stage.accuracy:.2%}", stage.forwards, stage.backwards, f"{stage.seconds:.1f}")
        stages.add(network, budget, cascade, *cells)


if __name__ == "__main__":
    main()
