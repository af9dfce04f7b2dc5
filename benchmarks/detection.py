"""Audits of FastestDet on 100 COCO pictures: figures of docs/results/object-detection.md, each printed with its command.

    python -m benchmarks.detection coco                 # AP and AP50 against pycocotools (pip install --target F pycocotools)
    python -m benchmarks.detection attack               # AP50, recall and errors of 40 pictures
    python -m benchmarks.detection black-box            # RLAB against Square: objects missed with 1,000 queries

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

import numpy as np
import torch

import brinell
from benchmarks.paired import collect, compare, with_steps
from brinell.analysis.average_precision import average_precision, match_set
from brinell.core.boxes import LEAST, MISSED, Detections, Objects
from brinell.core.detection import BoxForm
from brinell.engine.plan import model_opener
from brinell.engine.sources import open_data
from brinell.studies.dense.detection_analysis import open_study
from brinell.studies.dense.records import TABLE

FOLDER = Path(os.environ.get("BRINELL_SHARED", "../shared/data")) / "dense" / "detection"
DECODE = "decode=examples/detectors/fastestdet.py:decode"
MODULE = f"torch:{FOLDER}/model_det.py:load?{DECODE}&name=FastestDet"
BLACK_BOX_ATTACKS = ["rlab?refine=0&clean_up=false", "rlab?refine=0&clean_up=false&distortions=signed-patch", "square"]
"""Attacks by scores alone; the last one is what the others are compared with."""
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


def black_box(options: argparse.Namespace) -> None:
    """Objects that are missed after each attack, with as many queries."""
    samples, norm, eps = options.samples or 10, options.norm, options.eps or "8"
    settings = {"samples": samples, "norm": norm, "eps": eps, "criterion": "missed", "queries": options.queries}

    def run(name: str, seed: int) -> np.ndarray[Any, Any]:
        """(2, pictures): objects that are missed without an attack and under it."""
        start, text = time.process_time(), with_steps(name, options.queries - 1)
        with tempfile.TemporaryDirectory() as folder:
            data, out = f"boxes:{FOLDER}", Path(folder) / "run"
            result = brinell.dense(MODULE, data, out=out, attack=text, select="first", seed=seed, **settings)
            study = open_study(TABLE.read(out))
        missed = np.stack([study.total(study.set_of(MISSED, level), MISSED) for level in (0, 1)])
        print(
            f"{name} seed {seed}: {missed[1].tolist()} of {study.count.tolist()}, recall {result.recall[-1].value:.3f}, AP50 "
            f"{result.ap50[-1].value:.4f}, {sum(aim.forwards for aim in result.aims)} forwards, "
            f"{time.process_time() - start:.0f} s",
            flush=True,
        )
        return missed

    truth = open_data(f"boxes:{FOLDER}", truth=True).info.truth
    assert truth is not None
    total = np.array([picture.count for picture in truth.load(range(samples))])
    compare(collect(options.attack, options.seeds, run, options.results), total, "missed")


def main() -> None:
    """Run what is named."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("coco", "attack", "black-box"))
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--eps", default="")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--norm", default="l2")
    parser.add_argument("--results", type=Path, help="keeps the figures of black-box, which then goes on where it ended")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--attack", nargs="+", default=BLACK_BOX_ATTACKS)
    options = parser.parse_args()
    if options.what == "coco":
        compare_with_coco()
    elif options.what == "attack":
        attack(options.samples or 40, options.eps or "0.5/255,1/255,2/255,4/255", options.steps)
    else:
        black_box(options)


if __name__ == "__main__":
    main()
