"""Measure how strong every distortion is at each severity, or find the parameters at which all are
equally strong.

Strength is measured as the mean multi-scale structural similarity (MS-SSIM; Wang, Simoncelli &
Bovik 2003, Multiscale structural similarity for image quality assessment) of photographs and their
distorted versions: 1 for no change. The scales are counted from the coarsest, as if a picture of 32
pixels and one of 224 were shown at the same size, so the same weights serve both. Why this measure:
docs/reference/distortions.md. Distortions for signals alone are measured in the same way, over
time, on real heartbeats in bounds of +-5 mV.

    python scripts/calibrate_distortions.py
        the table for photographs and beats; needs BRINELL_SHARED
    python scripts/calibrate_distortions.py --search
        and the parameters that would reach the aims; some 20 minutes
    python scripts/calibrate_distortions.py --sheet FOLDER
        contact sheets
    python scripts/calibrate_distortions.py --data SPEC
        how strong the severities are on other data
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from brinell import plugins
from brinell.core.domain import Domain
from brinell.core.streams import Streams
from brinell.distortions._published import Published
from brinell.distortions._shared import frame, planes
from brinell.distortions.illuminate import Illuminate
from brinell.rlab.distort import SEVERITIES
from brinell.rlab.distort import distorted as apply

TARGETS = (0.95, 0.90, 0.82, 0.70, 0.55)
"""MS-SSIM at severities 1 to 5."""
WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Section 4 of the paper: weights of the scales, the finest first."""
WINDOW, DEVIATION = 11, 1.5
"""Values along the Gaussian window within which the pictures are compared, and its standard
deviation."""
CELLS = 8
"""Patches along each side of the mosaic on which signed_patch is calibrated."""


def ms_ssim(x: Tensor, y: Tensor) -> Tensor:
    """(n,): multi-scale structural similarity of two batches (n, *shape) in [0, 1], mean over
    channels and frames.

    Each scale halves the one before, as long as the window fits; where that gives fewer than five,
    the weights of the coarsest are taken. Works for signals too, with windows over time.
    """
    x, y = planes(x), planes(y)
    levels = 1
    while levels < len(WEIGHTS) and min(x.shape[2:]) >> levels >= WINDOW:
        levels += 1
    weights = torch.tensor(WEIGHTS[-levels:])
    weights /= weights.sum()
    product = torch.ones(len(x))
    for level in range(levels):
        luminance, structure = _compare(x, y)
        last = level == levels - 1
        value = (luminance * structure if last else structure).flatten(1).mean(1)
        product *= value.clamp_min(0) ** weights[level]
        if not last:
            x, y = _halve(x), _halve(y)
    return product


def _compare(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    mean_x, mean_y = _window(x), _window(y)
    variance_x, variance_y = _window(x * x) - mean_x**2, _window(y * y) - mean_y**2
    covariance = _window(x * y) - mean_x * mean_y
    a, b = 0.01**2, 0.03**2
    luminance = (2 * mean_x * mean_y + a) / (mean_x**2 + mean_y**2 + a)
    return luminance, (2 * covariance + b) / (variance_x + variance_y + b)


def _window(x: Tensor) -> Tensor:
    kernel = torch.exp(-0.5 * ((torch.arange(WINDOW) - WINDOW // 2) / DEVIATION) ** 2)
    kernel = (kernel / kernel.sum()).reshape(1, 1, -1)
    for axis in range(2, x.ndim):
        rows = x.movedim(axis, -1)
        mean = torch.nn.functional.conv1d(rows.reshape(-1, 1, rows.shape[-1]), kernel)
        x = mean.reshape(*rows.shape[:-1], -1).movedim(-1, axis)
    return x


def _halve(x: Tensor) -> Tensor:
    pool: Callable[..., Tensor] = (
        torch.nn.functional.avg_pool2d if x.ndim == 4 else torch.nn.functional.avg_pool1d
    )
    return pool(x, 2)


class Knob(NamedTuple):
    """One parameter of a distortion, and how to turn it."""

    distortion: str
    scale: str
    """The attribute that holds it."""
    turn: Callable[[Any, Tensor, Tensor, Streams], Tensor]
    """Distortion, inputs, parameter (n,) and streams to distorted inputs."""
    values: Tensor
    """What is tried, from weak to strong. Stepped parameters take one of these, the others what
    lies between."""
    stepped: bool = False
    signals: bool = False
    """True if the distortion is calibrated on heartbeats, because it does not suit photographs."""
    films: bool = False
    """True if the distortion is calibrated on clips, because it works from frame to frame."""

    @property
    def sizes(self) -> tuple[str, ...]:
        """Sizes and kinds of data for the calibration."""
        return (
            ("beats",)
            if self.signals
            else ("clips", "large clips")
            if self.films
            else ("small", "large")
        )

    def strengths_of(self, size: str) -> Sequence[float]:
        """Current parameters of the distortion."""
        scale = getattr(plugins.load("distortion", self.distortion), self.scale)
        return getattr(scale, "large" if "large" in size else "small")


def _plain(distortion: Any, x: Tensor, parameter: Tensor, rng: Streams) -> Tensor:
    return distortion.distort(x, parameter, rng)


def _darker(distortion: Any, x: Tensor, parameter: Tensor, rng: Streams) -> Tensor:
    return distortion.distort(x, -parameter, rng)


def _mosaic(distortion: Any, x: Tensor, parameter: Tensor, rng: Streams) -> Tensor:
    """As an agent uses it: signs that differ from patch to patch, here random."""
    plus, minus = (
        distortion.distort(x, parameter, torch.full(x.shape[:2], sign)) for sign in (1.0, -1.0)
    )
    signs = rng.integers(2, x.shape[1], CELLS, CELLS).float()
    return torch.where(torch.nn.functional.interpolate(signs, x.shape[2:]) > 0, plus, minus)


def _from(low: float, high: float, count: int = 20) -> Tensor:
    return torch.logspace(np.log10(low), np.log10(high), count)


KNOBS = (
    Knob("gaussian-noise", "scale", _plain, _from(0.02, 0.6)),
    Knob("gaussian-blur", "scale", _plain, _from(0.5, 20)),
    Knob("motion-blur", "scale", _plain, _from(1.5, 90)),
    Knob("brightness", "scale", _plain, _from(0.1, 0.9)),
    Knob("brightness", "darker", _darker, _from(0.1, 0.9)),
    Knob("contrast", "scale", _plain, _from(0.2, 1)),
    Knob("dead-pixel", "scale", _plain, _from(0.003, 0.6)),
    Knob("salt-and-pepper", "scale", _plain, _from(0.003, 0.6)),
    Knob(
        "jpeg",
        "scale",
        _plain,
        torch.tensor([90.0, 80, 70, 60, 50, 40, 30, 25, 20, 15, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2]),
        True,
    ),
    Knob("fog", "scale", _plain, _from(0.2, 1)),
    Knob(
        "pixelate",
        "scale",
        _plain,
        torch.tensor(
            [2.0, 2.3, 2.5, 2.7, 3, 3.5, 4, 4.5, 5, 5.5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20]
        ),
        True,
    ),
    Knob("occlusion", "scale", _plain, _from(0.01, 1.0)),
    Knob("signed-patch", "scale", _mosaic, _from(0.02, 0.6)),
    Knob("baseline-wander", "scale", _plain, _from(0.01, 1), signals=True),
    Knob("mains-hum", "scale", _plain, _from(0.002, 0.3), signals=True),
    Knob("muscle-noise", "scale", _plain, _from(0.002, 0.5), signals=True),
    Knob("electrode-pop", "scale", _plain, _from(0.01, 1), signals=True),
    Knob("dropout", "scale", _plain, _from(0.03, 1), signals=True),
    Knob("gain", "scale", _plain, _from(1.1, 20), signals=True),
    Knob("gain", "weaker", _plain, 1 - _from(0.1, 0.99), signals=True),
    Knob("frame-drop", "scale", _plain, _from(0.02, 0.8), films=True),
    Knob("frame-repeat", "scale", _plain, _from(0.05, 1.0), films=True),
    Knob("compression-blocks", "scale", _plain, _from(0.02, 1.0), films=True),
    Knob("flicker", "scale", _plain, _from(0.1, 2.0), films=True),
)


def strength(knob: Knob, x: Tensor, parameter: float) -> float:
    """Mean MS-SSIM of the photographs when the knob stands at `parameter`."""
    rng = Streams.of(0, torch.arange(len(x)))
    distortion = plugins.build("distortion", knob.distortion, {})
    return float(ms_ssim(x, knob.turn(distortion, x, torch.full((len(x),), parameter), rng)).mean())


def search(knob: Knob, x: Tensor) -> list[float]:
    """The parameter for each target: interpolated, or the nearest step."""
    strengths = [strength(knob, x, value) for value in knob.values.tolist()]
    if knob.stepped:
        return [
            float(knob.values[int(np.abs(np.array(strengths) - target).argmin())])
            for target in TARGETS
        ]
    # Strengths fall; interp wants them to rise. Beyond the ends it gives the end: as weak, or as
    # strong, as the distortion can be.
    falling = np.minimum.accumulate(strengths)
    return [float(f"{np.interp(-target, -falling, knob.values.numpy()):.2g}") for target in TARGETS]


def inputs(folder: Path, images: int) -> dict[str, Tensor]:
    """CIFAR-10 training images and ImageNet photographs, (n, 3, side, side), and heartbeats, (n, 1,
    187), in [0, 1].
    """
    pixels = np.load(folder / "cifar10" / "cifar10_train_a.npz")["images"][: 4 * images]
    small = torch.from_numpy(pixels.transpose(0, 3, 1, 2).astype(np.float32) / 255)
    files = sorted((folder / "imagenet_samples" / "images").glob("*.jpg"))
    selected = files[:: max(1, len(files) // images)][:images]
    large = np.stack(
        [np.asarray(Image.open(file).convert("RGB"), dtype=np.float32) for file in selected]
    )
    photographs = {
        "small": small,
        "large": torch.from_numpy(large / 255).permute(0, 3, 1, 2).contiguous(),
    }
    photographs |= {
        "clips": clips(folder, 0),
        "large clips": originals(folder, max(1, images // 12)),
    }
    return photographs | {
        "beats": heartbeats(folder / "ecg_mitbih" / "mitbih_beats_train_ds1.npz", 4 * images)
    }


def heartbeats(file: Path, count: int) -> Tensor:
    """(count, 1, 187): beats of all patients in turn, -5 to 5 mV as 0 to 1."""
    options = {
        "path": str(file),
        "kind": "signal",
        "divide": 1000.0,
        "low": -5.0,
        "high": 5.0,
        "groups": "record",
    }
    return plugins.build("dataset", "npz", options)().load(range(count)).add(5).div(10)


def clips(folder: Path, first: int) -> Tensor:
    """(39, 3, 16, 32, 32) in [0, 1]: every other DAVIS clip, from `first` on."""
    pixels = np.load(folder / "video" / "davis_clips.npz")["clips"][first::2]
    return torch.nn.functional.avg_pool3d(
        torch.from_numpy(pixels.transpose(0, 4, 1, 2, 3) / np.float32(255)), (1, 2, 2)
    )


def originals(folder: Path, count: int) -> Tensor:
    """(n, 3, 16, 224, 224) in [0, 1]: so many clips of each video file."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "all").symlink_to((folder / "video" / "originals").resolve())
        dataset = plugins.build(
            "dataset", "video-folder", {"path": place, "clips": count, "size": 224}
        )()
        return dataset.load(range(len(dataset)))


def distorted(name: str, x: Tensor, severity: int, draw: int, domain: Domain) -> Tensor:
    """Distorted inputs."""
    rng = Streams.of(0, torch.arange(len(x)))
    return apply(plugins.build("distortion", name, {}), x, severity, rng, domain=domain, draw=draw)


def calibrated() -> list[str]:
    """Every distortion but the published ones, whose severities are not ours to calibrate, and a
    second name of another.
    """
    return [
        name
        for name in plugins.names("distortion")
        if not issubclass(plugins.load("distortion", name), (Published, Illuminate))
    ]


def sheet(x: Tensor, tile: int) -> Image.Image:
    """Every distortion (rows, another photograph each) at severities 0 to 5 (columns)."""
    domain = Domain(kind="image", shape=tuple(x.shape[1:]))
    names = [name for name in calibrated() if "image" in plugins.load("distortion", name).domains]
    rows = []
    for index, name in enumerate(names):
        photograph = x[index % len(x)][None]
        row = torch.cat(
            [
                photograph,
                *(distorted(name, photograph, severity, 0, domain) for severity in SEVERITIES),
            ]
        )
        rows.append(
            torch.cat(list(torch.nn.functional.interpolate(row, (tile, tile), mode="nearest")), -1)
        )
    picture = Image.fromarray(
        (torch.cat(rows, -2).permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)
    )
    pen = ImageDraw.Draw(picture)
    for index, name in enumerate(names):
        pen.text((4, index * tile + 4), name, fill="white", stroke_width=1, stroke_fill="black")
    return picture


def other_data(spec: str, count: int) -> None:
    """MS-SSIM and root mean square change, as a share of the range, of each distortion on data that
    it was not calibrated on.
    """
    name, path, options = plugins.parse(spec)
    dataset = plugins.build("dataset", name, options | ({"path": path} if path else {}))()
    domain = dataset.domain
    x = dataset.load(range(min(count, len(dataset))))
    low, high = domain.bounds(x)
    print(
        f"{dataset.name}: {len(x)} of kind {domain.kind}, shape {domain.shape}, "
        "mean MS-SSIM / change at severities 1 to 5"
    )
    for distortion in calibrated():
        if domain.kind in plugins.load("distortion", distortion).domains:
            figures = []
            for severity in SEVERITIES:
                clean_view, distorted_view = (
                    (part - low) / (high - low)
                    for part in (x, distorted(distortion, x, severity, 0, domain))
                )
                change = (clean_view - distorted_view).square().flatten(1).mean(1).sqrt().mean()
                fits = min(frame(x)) >= WINDOW and domain.kind != "vector"
                figures.append(
                    f"{float(ms_ssim(clean_view, distorted_view).mean()) if fits else float('nan'):.2f} "
                    ""
                    f"/ {change:.3f}"
                )
            print(f"{distortion:<16}", "   ".join(figures), flush=True)


def table(pictures: dict[str, Tensor], only: str | None, searching: bool) -> None:
    """Prints the parameters of each distortion, their strengths, and the result of the search."""
    print(
        f"{'distortion':<18} {'side':<6} {'held':<34} MS-SSIM (aim "
        f"{' '.join(f'{target:.2f}' for target in TARGETS)})"
    )
    for knob in KNOBS:
        if only in (None, knob.distortion):
            for size in knob.sizes:
                x, values = pictures[size], knob.strengths_of(size)
                strength_text = " ".join(f"{strength(knob, x, value):.3f}" for value in values)
                name = f"{knob.distortion} {knob.scale}".removesuffix(" scale")
                value_text = " ".join(f"{value:g}" for value in values)
                search_text = (
                    "found " + " ".join(f"{value:g}" for value in search(knob, x))
                    if searching
                    else ""
                )
                print(
                    (
                        f"{name:<18} {x.shape[-1]:<6} {value_text:<34} "
                        f"{strength_text}   {search_text}"
                    ).rstrip(),
                    flush=True,
                )


def main() -> None:
    """Print the table, or draw the sheets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--images",
        type=int,
        default=24,
        help="photographs of 224 pixels a side; four times as many of 32",
    )
    parser.add_argument("--distortion", help="this one alone")
    parser.add_argument("--search", action="store_true", help="find the parameters too")
    parser.add_argument("--sheet", type=Path, help="draw contact sheets into this folder instead")
    parser.add_argument(
        "--data", help="measure on these inputs instead, as `brinell audit --data` names them"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.data:
        other_data(arguments.data, arguments.images)
        return
    pictures = inputs(Path(os.environ["BRINELL_SHARED"]), arguments.images)
    if arguments.sheet is None:
        table(pictures, arguments.distortion, arguments.search)
        return
    for size in ("small", "large"):
        x = pictures[size]
        sheet(x, 224).save(arguments.sheet / f"distortions-{size}.png")


if __name__ == "__main__":
    main()
