"""Overhead of attacks on maps and boxes over their bare passes, and the parts of a whole study.

    python benchmarks/dense_overhead.py --task segmentation
    python benchmarks/dense_overhead.py --task detection

Bare: the same batches, in the same order, through the same module, with a forward and an input gradient of the mean
cross-entropy (of the sum of all scores for boxes) and nothing else; hooks record them on a first run, and their number is checked
against the ledger's. Attack: `Group.run` of the study, from the clean pictures to the strongest inputs with their margins and
costs. It holds attack, ledger, criterion and projections. It does not hold the opening of data and model, checks, rows, stored
inputs or the page. Both run in turns, pass by pass, on one core. The budget is so small that hardly any picture is lost.

Study: processor seconds of `brinell.dense` with the same attacks from its call to its page, over the bare seconds of the passes
in its rows. The pictures are those of docs/results/dense.md.
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import dense
import measure
import numpy as np
import torch
from measure import Passes, Work, counting, ratios, repeated, spread
from torch import Tensor, nn

import brinell
from brinell import plugins
from brinell.core.criterion import Criterion
from brinell.core.data import Dataset
from brinell.core.detection import BoxCriterion, BoxForm, Error, Scene
from brinell.core.model import Model
from brinell.core.segmentation import PixelShare
from brinell.engine.plan import open_distance
from brinell.engine.sources import open_data
from brinell.models._detections import Decoded, open_decoder
from brinell.models._maps import MapModel
from brinell.models._torch_model import TorchModel
from brinell.studies.dense.records import TABLE
from brinell.studies.dense.stages import Group, Stage, StageResult

DETECTOR = dense.FOLDER / "detection"
DECODER = "examples/detectors/fastestdet.py:decode"
DETECTOR_SPEC = f"torch:{DETECTOR}/model_det.py:load?decode={DECODER}"

ATTACKS = {
    "segmentation": ("pgd?steps=20", "apgd-map?steps=20", "apgd-map?loss=jensen-shannon&steps=20", "square?steps=40"),
    "detection": ("pgd?steps=20", "apgd-map?wide=false&steps=20", "square?steps=40"),
}
"""Attacks whose overhead is measured, by task."""


class Segmentation:
    """DeepLabV3 on COCO pictures with masks."""

    criterion = None

    def __init__(self, pictures: int) -> None:
        x, masks, classes = dense.load_pictures(257, pictures)
        self.data = brinell.data(x, masks=masks, classes=classes)
        self.x, self._masks = self.data.load(range(pictures)), torch.from_numpy(masks.astype(np.int64))

    def module(self) -> nn.Module:
        """The network, with weights of its own."""
        return dense.load_net(dense.NETS[0])

    def prepare(self, module: nn.Module) -> tuple[Model, Criterion]:
        """The model around the network, and the default criterion."""
        model = MapModel(TorchModel(module, self.data.domain, name="deeplab"))
        return model, PixelShare(masks=self._masks, classes=model.output.classes)

    def bare_loss(self, answers: Tensor) -> Tensor:
        """The summed cross-entropy of the pixels of the first pictures."""
        return nn.functional.cross_entropy(answers, self._masks[: len(answers)], ignore_index=255, reduction="sum")


class Detection:
    """FastestDet on COCO pictures with boxes; its network and the function that decodes its raw output count as the model."""

    def __init__(self, pictures: int, error: Error) -> None:
        self.criterion = error
        self.data = open_data(f"boxes:{DETECTOR}", truth=True)
        truth = self.data.info.truth
        assert truth is not None
        self.x, self._scene = self.data.load(range(pictures)), Scene.of(truth.load(range(pictures)))

    def module(self) -> nn.Module:
        """The network with its decoding, with weights of its own."""
        network = dense.module_of(DETECTOR / "model_det.py").load()
        return Decoded(network, open_decoder(DECODER)[0])

    def prepare(self, module: nn.Module) -> tuple[Model, Criterion]:
        """The model around the network, and the criterion of one kind of error."""
        model = TorchModel(module, self.data.domain, name="FastestDet")
        form = model.info.output
        assert isinstance(form, BoxForm)
        return model, BoxCriterion(error=self.criterion, scene=self._scene, form=form, threshold=1.0)

    def bare_loss(self, answers: Tensor) -> Tensor:
        """The sum of all scores."""
        return answers[..., 4:].sum()


Subject = Segmentation | Detection


def group_of(subject: Subject, module: nn.Module, norm: str, batch_size: int) -> Group:
    """The pictures as the study attacks them."""
    model, criterion = subject.prepare(module)
    return Group(
        model=model,
        domain=subject.data.domain,
        distance=open_distance(norm),
        ids=torch.arange(len(subject.x)),
        x=subject.x,
        criterion=criterion,
        seed=0,
        batch_size=batch_size,
        queries=None,
    )


def attack_groups(group: Group, stage: Stage, eps: float, batch_size: int) -> list[StageResult]:
    """The results of an attack on group after group."""
    return [group.run(stage, eps, rows, None) for rows in torch.arange(len(group.x)).split(batch_size)]


def replay(subject: Subject, module: nn.Module, passes: Passes) -> None:
    """The same batches through the same module with nothing around them."""
    for size, backwards in passes.batches:
        x = subject.x[:size].detach()
        with torch.set_grad_enabled(backwards > 0):
            answers = module(x.requires_grad_() if backwards else x)
            if backwards:
                torch.autograd.grad(subject.bare_loss(answers), x)


def measure_attack(subject: Subject, name: str, options: argparse.Namespace) -> None:
    """Print the seconds of an attack over those of its bare passes."""
    ours, bare = subject.module().eval(), subject.module().eval().requires_grad_(False)
    group = group_of(subject, ours, options.norm, options.batch_size)
    spec, _, settings = plugins.parse(name)
    stage = Stage(name=name, attack=plugins.build("attack", spec, settings))
    run = partial(attack_groups, group, stage, options.eps, options.batch_size)
    with group.model.info.session("cpu"):
        with counting(ours) as passes:
            results = run()
        counted = tuple(sum(int(getattr(one, kind).sum()) for one in results) for kind in ("forwards", "backwards"))
        if counted != (passes.forwards, passes.backwards):
            raise SystemExit(f"the ledger counts {counted}, the hooks {(passes.forwards, passes.backwards)}")
        works = {"ours": Work(ours, run), "bare": Work(bare, partial(replay, subject, bare, passes))}
        times = repeated(works, options.repetitions, 1)
    ratio = spread(ratios(times["ours"], times["bare"], "cpu"))
    seconds = spread([timing.cpu for timing in times["bare"]], 2)
    print(f"{name} {subject.criterion or ''}: {counted[0]} / {counted[1]} passes, bare {seconds} s, overhead {ratio}", flush=True)


def measure_study(subject: Subject, data: Dataset | str, model: Any, attack: str, options: argparse.Namespace) -> None:
    """Print the seconds of a whole study over those of the bare passes that its rows count."""
    bare, settings = subject.module().eval().requires_grad_(False), {"criterion": subject.criterion, "norm": options.norm}
    with tempfile.TemporaryDirectory() as folder:
        start, out = time.process_time(), Path(folder) / "study"
        samples = {"samples": len(subject.x), "select": "first", "batch_size": options.batch_size}
        brinell.dense(model, data, eps=str(options.eps), attack=attack, out=out, **samples, **settings)
        ours, rows = time.process_time() - start, TABLE.read(out).rows
    whole, backwards = divmod(int(rows.backwards.sum()), options.batch_size)
    lone = int(rows.forwards.sum()) - int(rows.backwards.sum())
    batches = [[options.batch_size, 1]] * whole + [[1, 1]] * backwards + [[1, 0]] * lone
    start = time.process_time()
    replay(subject, bare, Passes(batches))
    seconds = time.process_time() - start
    counts = f"{int(rows.forwards.sum())} / {int(rows.backwards.sum())} passes"
    print(f"study, {attack}: {ours:.2f} s, bare {seconds:.2f} s for {counts}, ratio {ours / seconds:.3f}", flush=True)


def main() -> None:
    """Measure one task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=ATTACKS, required=True)
    parser.add_argument("--attack", action="append")
    parser.add_argument("--pictures", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--eps", type=float, default=1e-5)
    parser.add_argument("--norm", default="linf")
    parser.add_argument("--error", default="missed", choices=("missed", "false", "mislabelled", "misplaced"))
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--study", action="store_true", help="measure a whole study, too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    subject: Subject = (
        Segmentation(options.pictures) if options.task == "segmentation" else Detection(options.pictures, options.error)
    )
    print(measure.machine())
    for name in options.attack or ATTACKS[options.task]:
        measure_attack(subject, name, options)
        if options.study:
            is_map = options.task == "segmentation"
            data, model = (subject.data, subject.module()) if is_map else (f"boxes:{DETECTOR}", DETECTOR_SPEC)
            measure_study(subject, data, model, name, options)


if __name__ == "__main__":
    main()
