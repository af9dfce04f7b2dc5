"""Quality of explanation maps on photographs with known objects, method by method on the same
images.

    python benchmarks/explain.py [--network squeezenet1_0] [--part judge] [--truth masks] [--images
    40] [--each 3]
                                 [--steps 0] [--methods ...]

Settings of the mask of RLAB were chosen on the images of `--part tune`; `judge` are all others,
none of whose videos or breeds is in `tune`. `--truth boxes` takes the validation photographs with
boxes, which had no part in any choice. `--truth none` takes photographs of which nothing is known,
for deletion and insertion alone: one of every fourth class, by turns `tune` and `judge`. Only
images that the network gets right count. Frames of one video are one observation: intervals are by
video, and each photograph stands for itself. `--each` takes so many frames of a video at most.
`look` after a method says that its map is smoothed by the picture's colours, which knows nothing of
the network; a method is compared with those that have it and with those that have not. With --bf16
answers without a gradient are computed in bfloat16.
"""

import csv
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import measure
import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import brinell
from brinell.analysis.means import Mean, mean, mean_difference
from brinell.studies.explain import STUDY
from brinell.studies.explain.result import values

GROUP = "kinds"
RUNS = {"": "--network mcunet_144 --images 2 --methods rlab?questions=32 grad-cam centre"}
METHODS = (
    "rlab?prior=broad",
    "rlab?prior=broad&look=0",
    "rlab?questions=96",
    "rise?masks=480",
    "occlusion",
    "kernel-shap?subsets=240",
    "grad-cam",
    "grad-cam?look=0.12",
    "integrated-gradients",
    "smoothgrad",
    "gradient",
    "centre",
    "centre?look=0.12",
    "random",
)
OFF_CENTRE = 0.15
"""How far from the middle, in shares of the side, the centre of an object lies that counts as
off the centre."""


class Half(nn.Module):
    """A network whose answers are computed in bfloat16 where nobody asks for a gradient."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, h, w) to (n, 1000) logits in float32."""
        x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", torch.bfloat16, enabled=not x.requires_grad):
            answer: Tensor = self.net(x)
        return answer.float()


def with_masks(part: str) -> tuple[list[Path], list[set[int]], np.ndarray, list[str]]:
    """Files, accepted classes, masks and groups of one part of the images with object masks."""
    folder = measure.SHARED / "localization"
    with (folder / "masks.csv").open() as file:
        rows = list(csv.DictReader(file))
    masks = np.load(folder / "masks.npz")["masks"]
    tuned: set[str] = set()
    for source in ("davis", "pet"):
        tuned |= set(
            sorted({row["sequence_or_breed"] for row in rows if row["file"].startswith(source)})[
                ::2
            ]
        )
    selected = [
        index
        for index, row in enumerate(rows)
        if (row["sequence_or_breed"] in tuned) == (part == "tune")
    ]
    groups = [
        rows[number]["sequence_or_breed"] if rows[number]["file"].startswith("davis") else ""
        for number in selected
    ]
    accepted = [
        set(map(int, rows[number]["accepted_imagenet_indices"].split())) for number in selected
    ]
    return (
        [folder / "masks" / rows[number]["file"] for number in selected],
        accepted,
        masks[selected],
        groups,
    )


def with_boxes() -> tuple[list[Path], list[set[int]], np.ndarray, list[str]]:
    """The same of the validation photographs with boxes."""
    folder = measure.SHARED / "localization"
    files, accepted, masks = [], [], []
    with (folder / "boxes.csv").open() as file:
        for row in csv.DictReader(file):
            mask = np.zeros((224, 224), np.uint8)
            for box in row["boxes_x0_y0_x1_y1"].split(";"):
                x_low, y_low, x_high, y_high = (round(float(side)) for side in box.split())
                mask[y_low:y_high, x_low:x_high] = 1
            files.append(folder / "boxes" / row["file"])
            accepted.append({int(row["imagenet_index"])})
            masks.append(mask)
    return files, accepted, np.stack(masks), [""] * len(files)


def photographs(part: str) -> tuple[list[Path], list[set[int]], np.ndarray, list[str]]:
    """The same of the photographs without ground truth, whose masks are of no object: every second
    one belongs to a part.
    """
    folder = measure.SHARED / "imagenet_samples"
    with (folder / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))[part == "judge" :: 2]
    accepted, masks = (
        [{int(row["imagenet_index"])} for row in rows],
        np.zeros((len(rows), 224, 224), np.uint8),
    )
    return [folder / "images" / row["file"] for row in rows], accepted, masks, [""] * len(rows)


def load_images(
    options: Namespace, module: nn.Module
) -> tuple[Tensor, Tensor, np.ndarray, list[str]]:
    """Images that the network gets right, with classes, masks and groups."""
    parts = {"masks": with_masks, "none": photographs}
    files, accepted, masks, groups = (
        parts[options.truth](options.part) if options.truth in parts else with_boxes()
    )
    examples: list[tuple[Tensor, int, np.ndarray, str]] = []
    counts: dict[str, int] = {}
    for file, classes, mask, group in zip(files, accepted, masks, groups, strict=True):
        if len(examples) == options.images or (group and counts.get(group, 0) >= options.each):
            continue
        if options.truth != "none" and not 0 < (mask == 1).mean() < 0.95:
            continue
        x = (
            torch.from_numpy(np.array(Image.open(file).convert("RGB")))
            .permute(2, 0, 1)[None]
            .float()
            / 255
        )
        with torch.no_grad():
            prediction = int(module(x).argmax(1))
        if prediction in classes:
            counts[group] = counts.get(group, 0) + 1
            examples.append((x[0], prediction, mask, group))
    x, y, truths, names = zip(*examples, strict=True)
    return torch.stack(x), torch.tensor(y), np.stack(truths), list(names)


def off_centre(masks: np.ndarray) -> np.ndarray:
    """(n,) bool: which objects have their centre of mass off the middle."""
    offsets = (np.arange(masks.shape[1]) + 0.5) / masks.shape[1] - 0.5
    object_ = masks == 1
    down, right = (
        (object_ * side).sum((1, 2)) / object_.sum((1, 2))
        for side in (offsets[:, None], offsets[None])
    )
    return np.asarray(np.hypot(down, right) > OFF_CENTRE)


def format_mean(measured: Any) -> str:
    """A mean with its interval."""
    if measured is None:
        return ""
    interval = (
        measured.interval
        if hasattr(measured, "interval")
        else measured.low is not None and measured
    )
    return f"{measured.value:.3f}" + (
        f" [{interval.low:.3f}, {interval.high:.3f}]" if interval else ""
    )


def main() -> None:
    """One network on one part of the images."""
    counts = {"images": 40, "each": 3, "steps": 0}
    choices = {"part": ("judge", "tune"), "truth": ("masks", "boxes", "none")}
    options = measure.arguments(
        __doc__,
        network="squeezenet1_0",
        **choices,
        **counts,
        methods=list(METHODS),
        bf16=False,
        out="",
    )
    net = measure.subject(options.network).module()
    module = Half(net) if options.bf16 else net
    x, y, masks, groups = load_images(options, module)
    with tempfile.TemporaryDirectory() as folder:
        truth = Path(folder) / "truth.npz"
        np.savez(truth, masks=masks, groups=np.array(groups))
        settings = {
            "samples": f"first:{len(x)}",
            "batch_size": 64,
            "device": "cpu",
            "progress": True,
        }
        settings |= {"steps": options.steps, "method": tuple(options.methods)}
        known = None if options.truth == "none" else str(truth)
        result = brinell.explain(
            module, (x, y), truth=known, out=options.out or Path(folder) / "run", **settings
        )
        if options.truth == "none":
            followed(options, result)
        else:
            report(options, result, off_centre(masks))


def difference(rows: Any, result: Any, method: str, measured: str) -> Mean | None:
    """What the first method has more than this one, on the same samples; None of itself."""
    first = result.methods[0].name
    return (
        None
        if method == first
        else mean_difference(values(rows, first, measured) - values(rows, method, measured))
    )


def report(options: Namespace, result: Any, off: np.ndarray) -> None:
    """The tables."""
    rows = STUDY.resolve(STUDY.table).read(result.folder).rows
    source = f"{options.truth}, {options.part}" if options.truth == "masks" else "boxes"
    title = (
        f"{options.network}, {source}: {result.n} images in {result.groups} groups, "
        f"{int(off.sum())} objects off the centre"
    )
    heads = (
        "method, queries, Dice, IoU, pointing, Dice off centre, deletion, insertion, "
        "first minus this in Dice"
    )
    table = measure.Table(title, heads)
    for method in [
        entry
        for entry in result.methods
        if entry.queries or entry.name.partition("?")[0] in ("centre", "random")
    ]:
        cells = [format_mean(getattr(method, name)) for name in ("dice", "iou", "pointing")]
        cells += [
            format_mean(mean(values(rows, method.name, "dice")[off])),
            *(format_mean(getattr(method, name)) for name in ("deletion", "insertion")),
        ]
        table.add(
            method.name,
            f"{method.queries:.0f}",
            *cells,
            format_mean(difference(rows, result, method.name, "dice")),
        )


def followed(options: Namespace, result: Any) -> None:
    """The table without ground truth."""
    heads = (
        "method, queries, seconds, deletion, insertion, first minus this in "
        "deletion, in insertion, faithful"
    )
    table = measure.Table(
        f"{options.network}, photographs, {options.part}: {result.n} images", heads
    )
    rows = STUDY.resolve(STUDY.table).read(result.folder).rows
    for method in [
        entry
        for entry in result.methods
        if entry.faithful is not None or entry.name.partition("?")[0] in ("centre", "random")
    ]:
        paired = [
            format_mean(difference(rows, result, method.name, measured))
            for measured in ("deletion", "insertion")
        ]
        faithful = {True: "yes", False: "no", None: ""}[method.faithful]
        figures = (
            f"{method.queries:.0f}",
            f"{method.seconds:.2f}",
            format_mean(method.deletion),
            format_mean(method.insertion),
        )
        table.add(method.name, *figures, *paired, faithful)


if __name__ == "__main__":
    main()
