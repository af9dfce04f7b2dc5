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


def corrupt_by_package(name: str, x: np.ndarray, severity: int) -> np.ndarray:
    """(n, H, W, 3) bytes as the package corrupts them."""
    from imagecorruptions import corrupt

    return np.stack([corrupt(picture, corruption_name=name.replace("-", "_"), severity=severity) for picture in x])


def corrupt_by_brinell(name: str, x: np.ndarray, severity: int) -> np.ndarray:
    """The same by ours with the parameters for 224 pixels, cut to bytes as the package does."""
    kind = KINDS[name]()
    inputs = torch.from_numpy(x).permute(0, 3, 1, 2).float() / 255
    rng = Streams.of(0, torch.arange(len(x))).fold(f"{name} {severity}")
    corrupted = kind.distort(inputs, kind.large[severity - 1], rng).clamp(0, 1).permute(0, 2, 3, 1)
    return (corrupted * 255 + 1e-3).numpy().astype(np.uint8)


def spread(corrupted: np.ndarray, x: np.ndarray) -> np.ndarray:
    """(n,): root mean square change of each picture, in units of 1/255."""
    return np.sqrt(((corrupted.astype(float) - x) ** 2).mean((1, 2, 3)))


def compare(x: np.ndarray, names: list[str]) -> tuple[float, float]:
    """Print a line for each corruption; returns the seconds of ours and theirs."""
    totals = [0.0, 0.0]
    for name in names:
        figures = []
        for severity in SEVERITIES:
            start = time.process_time()
            own_images = corrupt_by_brinell(name, x, severity)
            middle = time.process_time()
            peer_images = corrupt_by_package(name, x, severity)
            totals[0] += middle - start
            totals[1] += time.process_time() - middle
            if KINDS[name].versions == 1:
                figures.append(f"{np.abs(own_images.astype(float) - peer_images).mean():.3f}")
            else:
                a, b = spread(own_images, x), spread(peer_images, x)
                figures.append(f"{a.mean():.1f} {b.mean():.1f} p={stats.ks_2samp(a, b).pvalue:.2g}")
        measure = "mean absolute difference /255" if KINDS[name].versions == 1 else "rms change ours, theirs, p"
        print(f"  {name:20} {measure}: {'; '.join(figures)}", flush=True)
    return totals[0], totals[1]


def main() -> None:
    """Compare at 32 pixels, and at 224 where pictures are given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cifar", required=True)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--large", type=int, default=20)
    parser.add_argument("--only", nargs="*", default=[name for name in KINDS if name != "frost"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    with np.load(options.cifar) as archive:
        x = archive["x" if "x" in archive.files else archive.files[0]][: options.images]
    x = x.transpose(0, 2, 3, 1) if x.shape[1] == 3 else x
    corrupt_by_package("glass-blur", x[:1], 1)  # compiled on first use
    print(f"{len(x)} pictures of 32 pixels")
    own_cpu, peer_cpu = compare(np.ascontiguousarray(x), options.only)
    print(f"  processor seconds: ours {own_cpu:.1f}, theirs {peer_cpu:.1f}, ratio {own_cpu / peer_cpu:.2f}")
    if options.pictures:
        files = (
            sorted(options.pictures.glob("*.JPEG"))[: options.large] or sorted(options.pictures.glob("*.jp*g"))[: options.large]
        )
        large = np.stack([np.asarray(Image.open(file).convert("RGB")) for file in files])
        print(f"{len(large)} pictures of {large.shape[1]} pixels")
        own_cpu, peer_cpu = compare(large, options.only)
        print(f"  processor seconds: ours {own_cpu:.1f}, theirs {peer_cpu:.1f}, ratio {own_cpu / peer_cpu:.2f}")


if __name__ == "__main__":
    sys.exit(main())
