"""Segmentation and detection under attack on real networks: figures over budgets, beside SEA's own
code, and black-box.

    python benchmarks/dense.py figures --net deeplabv3_mnv2_dm05_pascal --attack "sea?steps=5" --eps
    4/255,8/255 python benchmarks/dense.py figures --side 513 --pictures 4 --eps 0:8/255:9 --attack
    "apgd-map?steps=10" python benchmarks/dense.py peer --checkout CHECKOUT --steps 5 --eps
    1/510,1/255,4/255 python benchmarks/dense.py black-box --eps 8 --pictures 10 python
    benchmarks/dense.py boxes                    AP50, recall and errors of FastestDet on 40
                                                        pictures
    python benchmarks/dense.py boxes-black-box          RLAB against Square: objects missed with
                                                        1,000 queries
    python benchmarks/dense.py coco                     AP and AP50 beside pycocotools, which must
                                                        be on PYTHONPATH

Pictures, masks, boxes and weights are those of `dense` in BRINELL_SHARED; pictures with masks are
spread evenly over those of val2017, as in its README. CHECKOUT is a copy of
nmndeep/robust-segmentation, of which semseg/utils/attacker.py is used. With --results FILE
black-box keeps its figures, and goes on where it ended. Seconds are those of the processor.
"""

import contextlib
import importlib
import io
import json
import sys
import tempfile
import types
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import measure
import numpy as np
import torch
from torch import Tensor, nn

import brinell
from brinell.analysis.average_precision import average_precision, match_set
from brinell.analysis.pictures import ious
from brinell.core.boxes import LEAST, MISSED, Detections, Objects
from brinell.core.segmentation import confusion
from brinell.core.user_files import import_file
from brinell.engine.plan import model_opener
from brinell.engine.sources import open_data
from brinell.studies import register
from brinell.studies.audit.tasks.result import pictures_of

GROUP = "studies"
RUNS = {
    "figures": "--side 65 --pictures 1 --eps 8/255 --attack pgd?steps=2",
    "black-box --eps 8": "--side 65 --pictures 1 --seeds 1 --queries 10",
    "boxes": "--pictures 1 --steps 1 --eps 4/255",
    "boxes-black-box": "--pictures 1 --seeds 1 --queries 10",
}
Array = np.ndarray[Any, Any]
FOLDER = measure.SHARED / "dense"
BOXES = FOLDER / "detection"
DECODE = "decode=examples/detectors/fastestdet.py:decode"
MODULE, ONNX = (
    f"torch:{BOXES}/model_det.py:load?{DECODE}&name=FastestDet",
    f"onnx:{BOXES}/FastestDet.onnx?bgr=true&{DECODE}",
)
PEER_LOSSES = ("mask-ce-avg", "segpgd-loss", "js-avg", "mask-norm-corrlog-avg")
"""The losses of SEA by the names of its code."""
BLACK_BOX_ATTACKS = [
    "rlab?refine=0&clean_up=false",
    "rlab?refine=0&clean_up=false&distortions=signed-patch",
    "square",
]
"""Attacks by answers alone; the last one is what the others are compared with."""
DRAWS = 10_000
"""Bootstrap samples of the pictures."""


def run_study(
    model: Any, data: Any, read: Callable[[Path], Any] | None = None, **settings: Any
) -> tuple[Any, float, Any]:
    """A study in a temporary folder, its processor seconds, and what `read` makes of its folder."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "study"
        result, seconds = measure.timed(lambda: brinell.audit(model, data, out=out, **settings))
        return result, seconds, read(out) if read else None


def format_figure(figure: Any) -> str:
    """A figure with its interval."""
    return f"{figure.value:.4f}" + (
        "" if figure.low is None else f" ({figure.low:.4f} to {figure.high:.4f})"
    )


# --- differences with intervals over pictures
# ------------------------------------------------------------------------


def share_with_interval(losses: Array, total: Array) -> tuple[float, float, float]:
    """Share of losses (seeds, pictures) among (pictures,) pixels or objects, averaged over seeds,
    with its 95 % interval.

    Negative losses are differences of two attacks. The same pictures are drawn for every call.
    """
    mean = losses.mean(0)
    rows = np.random.default_rng(0).integers(0, len(total), (DRAWS, len(total)))
    counted = total[rows].sum(1)
    low, high = np.quantile(mean[rows].sum(1)[counted > 0] / counted[counted > 0], (0.025, 0.975))
    return float(mean.sum() / total.sum()), float(low), float(high)


def compare(options: Namespace, run: Callable[[str, int], Array], total: Array, noun: str) -> None:
    """Print the share of each attack, and its difference to the last one, paired by picture.

    `run` gives losses (2, pictures) without an attack and under it; those that a file holds already
    are not computed again.
    """
    file, attacks = options.results, options.attack or BLACK_BOX_ATTACKS
    stored = json.loads(file.read_text()) if file is not None and file.exists() else {}
    for seed in range(options.seeds):
        for attack in attacks:
            by_seed = stored.setdefault(attack, [])
            if len(by_seed) <= seed:
                spec = f"{attack}{'&' if '?' in attack else '?'}steps={options.queries - 1}"
                stored["none"], last = run(spec, seed).tolist()
                by_seed.append(last)
                if file is not None:
                    file.write_text(json.dumps(stored))
    losses = {"none": np.array([stored["none"]])} | {
        attack: np.array(stored[attack][: options.seeds]) for attack in attacks
    }
    for name, values in losses.items():
        share, low, high = share_with_interval(values, total)
        by_seed = ", ".join(f"{seed.sum() / total.sum():.4f}" for seed in values)
        print(
            f"{name}: {noun} {share:.4f} ({low:.4f} to {high:.4f}); by seed {by_seed}", flush=True
        )
    *rivals, last = losses
    for name in rivals:
        share, low, high = share_with_interval(losses[name] - losses[last].mean(0), total)
        print(f"{name} minus {last}: {share:+.4f} ({low:+.4f} to {high:+.4f})", flush=True)


# --- segmentation
# ------------------------------------------------------------------------------------------


def load_pictures(side: int, count: int) -> tuple[Array, Array, list[str]]:
    """Pictures and masks spread evenly over val2017, and the names of the classes."""
    data = import_file(FOLDER / "data_dense.py").segmentation(FOLDER / "segmentation", side=side)
    total = int((data["split"] == "val2017").sum())
    rows = [int(index * total / count) for index in range(count)]
    return data["images"][rows], data["masks"][rows], [str(name) for name in data["classes"]]


def load_net(name: str) -> nn.Module:
    """A network of the shared data."""
    net: nn.Module = import_file(FOLDER / "segmentation" / "model_seg.py").load(name)
    return net


def report(result: Any, seconds: float) -> None:
    """Print the figures of a study, and its passes for each picture."""
    rates = (result.clean_accuracy, *result.robust_accuracy)
    for accuracy, figure in zip(rates, result.figures[0].values, strict=True):
        backwards = (
            sum(stage.backwards for stage in result.stages if stage.eps == accuracy.eps) / result.n
        )
        print(
            f"{result.models[0]} eps {accuracy.eps:.4g} "
            f"({255 * accuracy.eps:.3g}/255): accuracy {format_figure(accuracy)}, "
            f"mIoU {format_figure(figure)}, {backwards:.1f} gradients a picture"
        )
    print(f"{seconds:.0f} s", flush=True)


def figures(options: Namespace) -> None:
    """Print pixel accuracy and mean IoU by budget."""
    x, masks, classes = load_pictures(options.side, options.pictures or 20)
    settings = {
        "eps": options.eps,
        "attack": options.attack or ["sea?steps=5"],
        "norm": options.norm,
        "seed": options.seed,
    }
    for net in options.net:
        report(
            *run_study(load_net(net), brinell.data(x, masks=masks, classes=classes), **settings)[:2]
        )


def load_peer(checkout: Path) -> Any:
    """SEA's module of attacks; the few helpers of autoattack that it imports stand in if that is
    not installed.
    """
    try:
        importlib.import_module("autoattack.other_utils")
    except ImportError:  # the benchmark autoattack.py of this folder has the name, too
        package, helpers = (
            types.ModuleType("autoattack"),
            types.ModuleType("autoattack.other_utils"),
        )
        helpers.L0_norm = lambda x: (x != 0).float().flatten(1).sum(1)  # type: ignore[attr-defined]
        helpers.L1_norm = helpers.L2_norm = None  # type: ignore[attr-defined]
        helpers.Logger = lambda path: types.SimpleNamespace(log=lambda text: None)  # type: ignore[attr-defined]
        sys.modules |= {"autoattack": package, "autoattack.other_utils": helpers}
    return import_file(checkout / "semseg" / "utils" / "attacker.py")


def attack_by_peer(
    attacker: Any, net: nn.Module, x: Tensor, mask: Tensor, eps: float, steps: int
) -> Tensor:
    """(classes, classes) counts of the answers to the worst input of SEA's losses."""
    counts, settings = (
        [],
        {"track_loss": "ce-avg", "use_rs": True, "early_stop": True, "n_iter": steps},
    )
    target = mask.where(mask != 255, torch.tensor(-1))
    for loss in PEER_LOSSES:
        with contextlib.redirect_stdout(io.StringIO()):
            adversarial, _, _ = attacker.apgd_largereps(
                net, x, target, eps=eps, loss=loss, **settings
            )
        assert float((adversarial - x).abs().max()) <= eps + 1e-6
        with torch.no_grad():
            counts.append(confusion(net(adversarial).argmax(1), mask, 21)[0])
    return min(counts, key=lambda count: float(count.trace()))


def peer(options: Namespace) -> None:
    """SEA's code beside ours at as many gradients: per budget alone, without what smaller budgets
    found.
    """
    attacker = load_peer(options.checkout)
    x, masks, classes = load_pictures(options.side, options.pictures or 20)
    inputs, truth = (
        torch.from_numpy(x.copy()).permute(0, 3, 1, 2).float() / 255,
        torch.from_numpy(masks.astype(np.int64)),
    )
    for name in options.net:
        net = load_net(name)
        for text in options.eps.split(","):
            run = (attacker, net), (measure.parse_eps(text), options.steps)
            torch.manual_seed(options.seed)  # noqa: TID251 - the peer draws from the global generator
            with measure.counting(net) as passes:
                counts, seconds = measure.timed(
                    lambda run=run: [
                        attack_by_peer(*run[0], inputs[k : k + 1], truth[k : k + 1], *run[1])
                        for k in range(len(x))
                    ]
                )
            value = np.asarray(sum(counts))
            print(
                f"SEA, {name} eps {text}: accuracy "
                f"{value.trace() / value.sum():.4f}, mIoU "
                f"{np.nanmean(ious(value)):.4f}, "
                f"{passes.forwards / len(x):.1f} forwards a picture, {seconds:.0f} s",
                flush=True,
            )
            settings = {"eps": text, "attack": f"sea?steps={options.steps}", "seed": options.seed}
            report(*run_study(net, brinell.data(x, masks=masks, classes=classes), **settings)[:2])


def black_box(options: Namespace) -> None:
    """RLAB beside Square by the share of valid pixels that each makes wrong."""
    x, masks, classes = load_pictures(options.side, options.pictures or 20)
    data, net, valid = (
        brinell.data(x, masks=masks, classes=classes),
        load_net(options.net[0]),
        (masks != 255).sum((1, 2)),
    )

    def run(attack: str, seed: int) -> Array:
        """(2, pictures): pixels that are wrong without an attack and under it."""
        settings = {"norm": "l2", "eps": options.eps, "queries": options.queries, "seed": seed}
        result, seconds, _ = run_study(net, data, attack=attack, **settings)
        report(result, seconds)
        return np.array(
            [[entry.n - entry.clean, entry.n - entry.robust[-1]] for entry in result.pictures]
        ).T

    compare(options, run, valid, "wrong pixels")


# --- boxes
# ------------------------------------------------------------------------------------------


def boxes(options: Namespace) -> None:
    """AP50, recall and errors over budgets by gradients."""
    settings = {"samples": f"first:{options.pictures or 40}", "eps": options.eps}
    settings["attack"] = options.attack or [f"apgd-map?steps={options.steps}&wide=false"]
    result, seconds, _ = run_study(MODULE, f"boxes:{BOXES}", **settings)
    curves = {curve.quantity: curve.values for curve in result.figures}
    curves |= {"recall": [result.clean_accuracy, *result.robust_accuracy]}
    for name, values in curves.items():
        print(f"{name}: {', '.join(map(format_figure, values)) or '-'}", flush=True)
    for stage in result.stages:
        passes = f"{stage.forwards} + {stage.backwards} passes"
        print(f"  {stage.aim} {stage.attack} {stage.eps:.5f}: recall {stage.accuracy}, {passes}")
    print(f"{seconds:.0f} s")


def boxes_black_box(options: Namespace) -> None:
    """Objects that are missed after each attack, with as many queries."""
    samples = options.pictures or 10
    settings = {
        "samples": f"first:{samples}",
        "norm": "l2",
        "eps": options.eps,
        "criterion": "missed",
    }

    def read(out: Path) -> Array:
        """(2, pictures): objects that are missed without an attack and under it."""
        folder = register.load("audit pictures").table().read(out)
        found = pictures_of(folder.rows, register.load("audit pictures").open(out).facts)
        return np.stack([found.counts[MISSED][found.worst(MISSED, level)] for level in (0, 1)])

    def run(attack: str, seed: int) -> Array:
        result, seconds, missed = run_study(
            MODULE,
            f"boxes:{BOXES}",
            read,
            attack=attack,
            seed=seed,
            queries=options.queries,
            **settings,
        )
        figures = (
            f"recall {result.robust_accuracy[-1].value:.3f}, AP50 "
            f"{result.figures[0].values[-1].value:.4f}, {seconds:.0f} s"
        )
        print(f"{attack} seed {seed}: {missed[1].tolist()} missed, {figures}", flush=True)
        return np.asarray(missed)

    truth = open_data(f"boxes:{BOXES}", truth=True).info.truth
    compare(
        options, run, np.array([picture.count for picture in truth.load(range(samples))]), "missed"
    )


def coco_figures(
    detections: Sequence[Detections], objects: Sequence[Objects]
) -> tuple[float, float]:
    """AP50 and AP by pycocotools."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truth, annotations, results = COCO(), [], []
    for number, (boxes_of_picture, picture) in enumerate(zip(detections, objects, strict=True)):
        for box, label, crowd in zip(picture.boxes, picture.labels, picture.crowd, strict=True):
            sides = box[2:] - box[:2]
            entry = {
                "id": len(annotations) + 1,
                "image_id": number,
                "category_id": int(label),
                "iscrowd": int(crowd),
            }
            annotations.append(entry | {"area": float(sides.prod()), "bbox": [*box[:2], *sides]})
        for box, label, score in zip(
            boxes_of_picture.boxes, boxes_of_picture.labels, boxes_of_picture.scores, strict=True
        ):
            entry = {"image_id": number, "category_id": int(label), "score": float(score)}
            results.append(entry | {"bbox": [*box[:2], *(box[2:] - box[:2])]})
    categories = [
        {"id": label} for label in sorted({entry["category_id"] for entry in annotations + results})
    ]
    images = [{"id": number} for number in range(len(objects))]
    truth.dataset = {"images": images, "annotations": annotations, "categories": categories}
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        run = COCOeval(truth, truth.loadRes(results), "bbox")
        for step in (run.evaluate, run.accumulate, run.summarize):
            step()
    return float(run.stats[1]), float(run.stats[0])


def coco(options: Namespace) -> None:
    """AP50 and AP of both models on all pictures, by Brinell and by pycocotools, without an attack
    and with noise.
    """
    data = open_data(f"boxes:{BOXES}", truth=True)
    x, objects = data.load(range(len(data))), data.info.truth.load(range(len(data)))
    noise = torch.empty_like(x).uniform_(
        -8 / 255, 8 / 255, generator=torch.Generator().manual_seed(0)
    )
    for name, spec in (
        ("module", MODULE),
        ("ONNX", ONNX),
        ("ONNX, gradients", f"{ONNX}&gradients=true"),
    ):
        model = model_opener(spec, data)()
        for title, inputs in (("clean", x), ("noise 8/255", (x + noise).clamp(0, 1))):
            with torch.no_grad():
                detections = [
                    boxes
                    for part in inputs.split(10)
                    for boxes in model.info.output.decode(model.predict(part), LEAST)
                ]
            half, average = average_precision(match_set(detections, objects))
            ap50, ap = coco_figures(detections, objects)
            print(
                f"{name}, {title}: AP50 {half[0]:.4f}, pycocotools {ap50:.4f}; AP "
                f"{average[0]:.4f}, {ap:.4f}",
                flush=True,
            )


COMMANDS = {
    command.__name__.replace("_", "-"): command
    for command in (figures, peer, black_box, boxes, boxes_black_box, coco)
}


def main() -> None:
    """Run a command."""
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        sys.argv.insert(1, "--what")
    lists = {"net": ["deeplabv3_mnv2_dm05_pascal"], "attack": []}
    counts = {"side": 257, "pictures": 0, "steps": 0, "queries": 1000, "seeds": 3, "seed": 0}
    paths = {"checkout": Path, "results": Path}
    options = measure.arguments(
        __doc__, what=tuple(COMMANDS), **lists, **counts, **paths, eps="", norm="linf"
    )
    options.steps = options.steps or (25 if options.what == "boxes" else 5)
    defaults = {"boxes": "0.5/255,1/255,2/255,4/255", "boxes-black-box": "8"}
    options.eps = options.eps or defaults.get(options.what, "4/255,8/255")
    COMMANDS[options.what](options)


if __name__ == "__main__":
    main()
