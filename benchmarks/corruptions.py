"""Our corruptions beside those of imagecorruptions-imaug: the same pixels where nothing is random, the same spread where it is.

    python benchmarks/corruptions.py --cifar CIFAR10_TEST.npz [--images 200] [--pictures FOLDER]

The package has one set of parameters, that of ImageNet-C; ours are called with the same ones at both sizes. Of what is random,
the root mean square change of each picture is compared (Kolmogorov and Smirnov's two-sample test). Frost is left out: the package
takes it from photographs, ours is drawn.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from scipy import stats

from brinell import plugins
from brinell.core.streams import Streams
from brinell.distortions._published import Published

SEVERITIES = (1, 2, 3, 4, 5)
KINDS: dict[str, type[Published]] = {
    name.removeprefix("published-"): plugins.load("distortion", name)
    for name in plugins.names("distortion")
    if issubclass(plugins.load("distortion", name), Published)
}
"""The published distortions by the names of the package."""


def theirs(name: str, x: np.ndarray, severity: int) -> np.ndarray:
    """(n, H, W, 3) bytes as the package corrupts them."""
    from imagecorruptions import corrupt

    return np.stack([corrupt(one, corruption_name=name.replace("-", "_"), severity=severity) for one in x])


def ours(name: str, x: np.ndarray, severity: int) -> np.ndarray:
    """The same by ours with the parameters for 224 pixels, cut to bytes as the package does."""
    kind = KINDS[name]()
    inputs = torch.from_numpy(x).permute(0, 3, 1, 2).float() / 255
    rng = Streams.of(0, torch.arange(len(x))).fold(f"{name} {severity}")
    made = kind.distort(inputs, kind.large[severity - 1], rng).clamp(0, 1).permute(0, 2, 3, 1)
    return (made * 255 + 1e-3).numpy().astype(np.uint8)


def spread(made: np.ndarray, x: np.ndarray) -> np.ndarray:
    """(n,): root mean square change of each picture, in units of 1/255."""
    return np.sqrt(((made.astype(float) - x) ** 2).mean((1, 2, 3)))


def compare(x: np.ndarray, names: list[str]) -> tuple[float, float]:
    """Print a line for each corruption; returns the seconds of ours and theirs."""
    totals = [0.0, 0.0]
    for name in names:
        told = []
        for severity in SEVERITIES:
            started = time.process_time()
            mine = ours(name, x, severity)
            between = time.process_time()
            other = theirs(name, x, severity)
            totals[0] += between - started
            totals[1] += time.process_time() - between
            if KINDS[name].versions == 1:
                told.append(f"{np.abs(mine.astype(float) - other).mean():.3f}")
            else:
                a, b = spread(mine, x), spread(other, x)
                told.append(f"{a.mean():.1f} {b.mean():.1f} p={stats.ks_2samp(a, b).pvalue:.2g}")
        how = "mean absolute difference /255" if KINDS[name].versions == 1 else "rms change ours, theirs, p"
        print(f"  {name:20} {how}: {'; '.join(told)}", flush=True)
    return totals[0], totals[1]


def main() -> None:
    """Compare at 32 pixels, and at 224 where pictures are given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cifar", required=True)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--large", type=int, default=20)
    parser.add_argument("--only", nargs="*", default=[name for name in KINDS if name != "frost"])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with np.load(asked.cifar) as held:
        x = held["x" if "x" in held.files else held.files[0]][: asked.images]
    x = x.transpose(0, 2, 3, 1) if x.shape[1] == 3 else x
    theirs("glass-blur", x[:1], 1)  # compiled on first use
    print(f"{len(x)} pictures of 32 pixels")
    mine, other = compare(np.ascontiguousarray(x), asked.only)
    print(f"  processor seconds: ours {mine:.1f}, theirs {other:.1f}, ratio {mine / other:.2f}")
    if asked.pictures:
        files = sorted(asked.pictures.glob("*.JPEG"))[: asked.large] or sorted(asked.pictures.glob("*.jp*g"))[: asked.large]
        large = np.stack([np.asarray(Image.open(file).convert("RGB")) for file in files])
        print(f"{len(large)} pictures of {large.shape[1]} pixels")
        mine, other = compare(large, asked.only)
        print(f"  processor seconds: ours {mine:.1f}, theirs {other:.1f}, ratio {mine / other:.2f}")


if __name__ == "__main__":
    sys.exit(main())
