"""Audits of FastestDet on 100 COCO pictures: figures of docs/results/dense.md, each printed with its command.

    python -m benchmarks.detection coco                 # AP and AP50 against pycocotools (pip install --target F pycocotools)
    python -m benchmarks.detection attack               # AP50, recall and errors of 40 pictures
    python -m benchmarks.detection black-box            # RLAB against Square: objects missed with 1,000 queries
    python -m benchmarks.detection overhead             # seconds of an attack over those of its bare passes

The pictures and the weights are those of BRINELL_SHARED/dense/detection. For `coco`, pycocotools must be on PYTHONPATH; Brinell
does not depend on it.
"""

import argparse
import contextlib
import io
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import brinell
from brinell.analysis.average_precision import average_precision, match_set
from brinell.core.boxes import LEAST, Detections, Objects
from brinell.core.detection import BoxForm
from brinell.engine.plan import model_opener
from brinell.engine.sources import open_data

FOLDER = Path(os.environ.get("BRINELL_SHARED", "../shared/data")) / "dense" / "detection"
DECODE = "decode=examples/detectors/fastestdet.py:decode"
MODULE = f"torch:{FOLDER}/model_det.py:load?{DECODE}&name=FastestDet"
ONNX = f"onnx:{FOLDER}/FastestDet.onnx?bgr=true&{DECODE}"


def coco_figures(detections: Sequence[Detections], objects: Sequence[Objects]) -> tuple[float, float]:
    """AP50 and AP by pycocotools."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truth, annotations, results = COCO(), [], []
    for number, (boxes, picture) in enumerate(zip(detections, objects, strict=True)):
        for box, label, crowd in zip(picture.boxes, picture.labels, picture.crowd, strict=True):
            sides = box[2:] - box[:2]
            entry = {"id": len(annotations) + 1, "image_id": number, "category_id": int(label), "iscrowd": int(crowd)}
            annotations.append(entry | {"area": float(sides.prod()), "bbox": [*box[:2], *sides]})
        for box, label, score in zip(boxes.boxes, boxes.labels, boxes.scores, strict=True):
            entry = {"image_id": number, "category_id": int(label), "score": float(score)}
            results.append(entry | {"bbox": [*box[:2], *(box[2:] - box[:2])]})
    categories = sorted({entry["category_id"] for entry in annotations + results})
    images = [{"id": number} for number in range(len(objects))]
    truth.dataset = {"images": images, "annotations": annotations, "categories": [{"id": label} for label in categories]}
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        run = COCOeval(truth, truth.loadRes(results), "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return float(run.stats[1]), float(run.stats[0])


def compare_with_coco() -> None:
    """AP50 and AP of both models on all pictures, by Brinell and by pycocotools, without an attack and with noise."""
    data = open_data(f"boxes:{FOLDER}", truth=True)
    truth = data.info.truth
    assert truth is not None
    ids = range(len(data))
    x, objects = data.load(ids), truth.load(ids)
    noise = torch.empty_like(x).uniform_(-8 / 255, 8 / 255, generator=torch.Generator().manual_seed(0))
    for name, spec in (("module", MODULE), ("ONNX", ONNX), ("ONNX, gradients", f"{ONNX}&gradients=true")):
        model = model_opener(spec, data)()
        form = model.info.output
        assert isinstance(form, BoxForm)
        for title, inputs in (("clean", x), ("noise 8/255", (x + noise).clamp(0, 1))):
            with torch.no_grad():
                detections = [boxes for part in inputs.split(10) for boxes in form.decode(model.predict(part), LEAST)]
            half, whole = average_precision(match_set(detections, objects))
            theirs = coco_figures(detections, objects)
            print(
                f"{name}, {title}: AP50 {half[0]:.4f}, pycocotools {theirs[0]:.4f}; AP {whole[0]:.4f}, {theirs[1]:.4f}",
                flush=True,
            )


def audit(**settings: Any) -> Any:
    """The result of an audit in a folder that is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        return brinell.dense(data=f"boxes:{FOLDER}", out=Path(folder) / "run", **{"model": MODULE, "select": "first"} | settings)


def attack(samples: int, eps: str, steps: int) -> None:
    """AP50, recall and errors over budgets by gradients."""
    start = time.process_time()
    result = audit(samples=samples, eps=eps, attack=[f"apgd-map?steps={steps}&wide=false"])
    print_curves(result)
    for aim in result.aims:
        print(
            f"  {aim.error} {aim.eps:.5f}: AP50 {aim.ap50:.4f}, AP {aim.ap:.4f}, recall {aim.recall:.3f}, missed "
            f"{aim.missed}, mislabelled "
            f"{aim.mislabelled}, misplaced {aim.misplaced}, false {aim.false}, shown {aim.boxes}, {aim.forwards} + "
            f"{aim.backwards} passes"
        )
    print(f"{time.process_time() - start:.0f} processor seconds")


def print_curves(result: Any) -> None:
    """Print the figures of a result."""
    curves = {"AP50": result.ap50, "AP": result.ap, "recall": result.recall, **dict(result.errors)}
    for name, figures in curves.items():
        texts = [f"{figure.value:.4f} ({figure.low:.4f} to {figure.high:.4f})" for figure in figures]
        print(f"{name}: {', '.join(texts) or '-'}", flush=True)


def black_box(samples: int, queries: int, norm: str, eps: str, seeds: Sequence[int]) -> None:
    """Objects missed by RLAB and by Square with as many queries."""
    for name in (f"square?steps={queries}", f"rlab?steps={queries}"):
        for seed in seeds:
            start = time.process_time()
            result = audit(samples=samples, norm=norm, eps=eps, attack=[name], criterion="missed", seed=seed)
            missed = result.errors.missed
            lost = sum(picture.losses[-1] for picture in result.pictures)
            print(
                f"{name} {norm} {eps} seed {seed}: missed {missed[0].value:.3f} -> {missed[-1].value:.3f} of {result.objects} "
                f"objects, not found "
                f"{lost}, recall {result.recall[-1].value:.3f}, AP50 {result.ap50[-1].value:.4f}, "
                f"{sum(a.forwards for a in result.aims)} "
                f"forwards, {time.process_time() - start:.0f} s",
                flush=True,
            )


def overhead(samples: int, steps: int) -> None:
    """Processor seconds of an attack, over those of as many bare passes."""
    data = open_data(f"boxes:{FOLDER}", truth=True)
    model = model_opener(MODULE, data)()
    x = data.load(range(samples))
    begin = time.process_time()
    for _ in range(steps):
        leaf = x.clone().requires_grad_(True)
        torch.autograd.grad(model.predict(leaf).sum(), leaf)
    bare = time.process_time() - begin
    begin = time.process_time()
    result = audit(samples=samples, eps="4/255", attack=[f"apgd-map?steps={steps}&wide=false"], criterion="missed")
    seconds = sum(aim.seconds for aim in result.aims)
    print(
        f"{steps} passes of {samples} pictures: bare {bare:.2f} s, attack {seconds:.2f} s wall, whole audit "
        f"{time.process_time() - begin:.2f} s"
    )


def main() -> None:
    """Run what is named."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("coco", "attack", "black-box", "overhead"))
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--eps", default="")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--norm", default="l2")
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    if options.what == "coco":
        compare_with_coco()
    elif options.what == "attack":
        attack(options.samples or 40, options.eps or "0.5/255,1/255,2/255,4/255", options.steps)
    elif options.what == "black-box":
        black_box(options.samples or 10, options.queries, options.norm, options.eps or "8", options.seed)
    else:
        overhead(options.samples or 8, options.steps)


if __name__ == "__main__":
    main()
