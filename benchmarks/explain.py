"""What maps of what matters are worth on photographs with known objects, method by method on the same images.

    python benchmarks/explain.py [--network squeezenet1_0] [--part judge] [--truth masks] [--images 40] [--each 3]
                                 [--steps 0] [--methods ...]

Settings of the mask of RLAB were chosen on the images of `--part tune`; `judge` are all others, none of whose videos or breeds is
in `tune`. `--truth boxes` takes the validation photographs with boxes, which had no part in any choice. `--truth none` takes
photographs of which nothing is known, for deletion and insertion alone: one of every fourth class, by turns `tune` and `judge`.
Only images that the network gets right count. Frames of one video are one observation: intervals are by video, and each
photograph stands for itself. `--each` takes so many frames of a video at most. `look` after a method says that its map is
smoothed by the picture's colours, which knows nothing of the network; a method is compared with those that have it and with those
that have not. With --bf16 answers without a gradient are computed in bfloat16.
"""

import argparse
import csv
import tempfile
from pathlib import Path
from typing import Any

import measure
import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import brinell
from brinell.core.user_files import import_file

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
"""How far from the middle, in shares of the side, the centre of an object lies that counts as off the centre."""


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


def network(name: str, half: bool) -> nn.Module:
    """A network of the shared data."""
    from safetensors.torch import load_file

    module: nn.Module = getattr(import_file(measure.ROOT / "examples" / "models" / "imagenet.py"), name)()
    weights = load_file(measure.SHARED / "imagenet_weights" / f"{name}.safetensors")
    module.load_state_dict({key: value.float() for key, value in weights.items()})
    module.eval().requires_grad_(False)
    return Half(module) if half else module


def with_masks(part: str) -> tuple[list[Path], list[set[int]], np.ndarray, list[str]]:
    """Files, accepted classes, masks and groups of one part of the images with object masks."""
    folder = measure.SHARED / "localization"
    with (folder / "masks.csv").open() as file:
        rows = list(csv.DictReader(file))
    masks = np.load(folder / "masks.npz")["masks"]
    tuned: set[str] = set()
    for source in ("davis", "pet"):
        tuned |= set(sorted({row["sequence_or_breed"] for row in rows if row["file"].startswith(source)})[::2])
    chosen = [at for at, row in enumerate(rows) if (row["sequence_or_breed"] in tuned) == (part == "tune")]
    groups = [rows[at]["sequence_or_breed"] if rows[at]["file"].startswith("davis") else "" for at in chosen]
    accepted = [set(map(int, rows[at]["accepted_imagenet_indices"].split())) for at in chosen]
    return [folder / "masks" / rows[at]["file"] for at in chosen], accepted, masks[chosen], groups


def with_boxes() -> tuple[list[Path], list[set[int]], np.ndarray, list[str]]:
    """The same of the validation photographs with boxes."""
    folder = measure.SHARED / "localization"
    files, accepted, masks = [], [], []
    with (folder / "boxes.csv").open() as file:
        for row in csv.DictReader(file):
            mask = np.zeros((224, 224), np.uint8)
            for box in row["boxes_x0_y0_x1_y1"].split(";"):
                left, top, right, bottom = (round(float(side)) for side in box.split())
                mask[top:bottom, left:right] = 1
            files.append(folder / "boxes" / row["file"])
            accepted.append({int(row["imagenet_index"])})
            masks.append(mask)
    return files, accepted, np.stack(masks), [""] * len(files)


def photographs(part: str) -> tuple[list[Path], list[set[int]], np.ndarray, list[str]]:
    """The same of the photographs without ground truth, whose masks are of no object: every second one belongs to a part."""
    folder = measure.SHARED / "imagenet_samples"
    with (folder / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))[part == "judge" :: 2]
    accepted = [{int(row["imagenet_index"])} for row in rows]
    return (
        [folder / "images" / row["file"] for row in rows],
        accepted,
        np.zeros((len(rows), 224, 224), np.uint8),
        [""] * len(rows),
    )


def chosen(options: argparse.Namespace, module: nn.Module) -> tuple[Tensor, Tensor, np.ndarray, list[str]]:
    """Images that the network gets right, with classes, masks and groups."""
    parts = {"masks": with_masks, "none": photographs}
    files, accepted, masks, groups = parts[options.truth](options.part) if options.truth in parts else with_boxes()
    kept: list[tuple[Tensor, int, np.ndarray, str]] = []
    taken: dict[str, int] = {}
    for file, classes, mask, group in zip(files, accepted, masks, groups, strict=True):
        if len(kept) == options.images or (group and taken.get(group, 0) >= options.each):
            continue
        if options.truth != "none" and not 0 < (mask == 1).mean() < 0.95:
            continue
        x = torch.from_numpy(np.array(Image.open(file).convert("RGB"))).permute(2, 0, 1)[None].float() / 255
        with torch.no_grad():
            prediction = int(module(x).argmax(1))
        if prediction in classes:
            taken[group] = taken.get(group, 0) + 1
            kept.append((x[0], prediction, mask, group))
    x, y, truths, names = zip(*kept, strict=True)
    return torch.stack(x), torch.tensor(y), np.stack(truths), list(names)


def off_centre(masks: np.ndarray) -> np.ndarray:
    """(n,) bool: which objects have their centre of mass off the middle."""
    along = (np.arange(masks.shape[1]) + 0.5) / masks.shape[1] - 0.5
    object_ = masks == 1
    down, right = ((object_ * side).sum((1, 2)) / object_.sum((1, 2)) for side in (along[:, None], along[None]))
    return np.asarray(np.hypot(down, right) > OFF_CENTRE)


def told(measured: Any) -> str:
    """A mean with its interval."""
    return "" if measured is None else f"{measured.value:.3f} [{measured.low:.3f}, {measured.high:.3f}]"


def main() -> None:
    """One network on one part of the images."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="squeezenet1_0")
    parser.add_argument("--part", choices=("judge", "tune"), default="judge")
    parser.add_argument("--truth", choices=("masks", "boxes", "none"), default="masks")
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--each", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--copies", type=int, default=0)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    module = network(options.network, options.bf16)
    x, y, masks, groups = chosen(options, module)
    with tempfile.TemporaryDirectory() as folder:
        truth = Path(folder) / "truth.npz"
        np.savez(truth, masks=masks, groups=np.array(groups))
        result = brinell.explain(
            module,
            (x, y),
            truth=None if options.truth == "none" else f"npz:{truth}",
            method=tuple(options.methods),
            samples=len(x),
            select="first",
            steps=options.steps,
            copies=options.copies,
            batch_size=64,
            device="cpu",
            out=options.out or Path(folder) / "run",
            tell=print,
        )
        if options.truth == "none":
            followed(options, result)
        else:
            report(options, result, off_centre(masks))


def report(options: argparse.Namespace, result: Any, off: np.ndarray) -> None:
    """The tables."""
    from brinell.analysis.stats import mean
    from brinell.studies.explain.analysis import values
    from brinell.studies.explain.records import TABLE

    rows = TABLE.read(result.folder).rows
    what = f"{options.truth}, {options.part}" if options.truth == "masks" else "boxes"
    title = f"{options.network}, {what}: {result.n} images in {result.groups} groups, {int(off.sum())} objects off the centre"
    command = measure.command(options, "network", "part", "truth", "images", "each", "steps", "methods")
    heads = "method, queries, Dice, IoU, pointing, Dice off centre, deletion, insertion, first minus this in Dice"
    table = measure.Table(title, command, heads.split(", "))
    differences = {pair.other: pair.difference for pair in result.pairs if pair.measure == "dice"}
    for one in [one for one in result.methods if one.queries or one.name.partition("?")[0] in ("centre", "random")]:
        far = mean(values(rows, one.name, "dice")[off])
        apart = "" if far is None else f"{far.value:.3f} [{far.interval.low:.3f}, {far.interval.high:.3f}]"
        cells = [told(one.dice), told(one.iou), told(one.pointing), apart, told(one.deletion), told(one.insertion)]
        table.add(one.name, f"{one.queries:.0f}", *cells, told(differences.get(one.name)))


def followed(options: argparse.Namespace, result: Any) -> None:
    """The table where there is no ground truth."""
    command = measure.command(options, "network", "truth", "part", "images", "steps", "methods")
    heads = "method, queries, seconds, deletion, insertion, first minus this in deletion, in insertion, faithful"
    table = measure.Table(f"{options.network}, photographs, {options.part}: {result.n} images", command, heads.split(", "))
    differences = {(pair.other, pair.measure): pair.difference for pair in result.pairs}
    for one in [one for one in result.methods if one.faithful is not None or one.name.partition("?")[0] in ("centre", "random")]:
        paired = [told(differences.get((one.name, measured))) for measured in ("deletion", "insertion")]
        faithful = {True: "yes", False: "no", None: ""}[one.faithful]
        table.add(
            one.name, f"{one.queries:.0f}", f"{one.seconds:.2f}", told(one.deletion), told(one.insertion), *paired, faithful
        )


if __name__ == "__main__":
    main()
