"""Does the size of a patch matter differently to transformers? RLAB with patches of three sizes on networks of several families.

    python benchmarks/rlab --study families [--robust] [--weights FOLDER] [--samples 100] [--seeds 0 1 2]

CIFAR-10 test images that the network gets right, greedy, noise, L2 at most --eps, 500 queries. Without --robust plain networks:
two convolutional ones of the shared data, and a vision transformer, a mixer and a mobile network of examples/train_families.py,
whose weights (NAME.safetensors) lie in --weights. With it: two robust convolutional networks and two robust transformers.

A query is one image shown to the network, the check of the clean image included. An image counts with its mean over the seeds,
one that was not fooled with the whole budget. Ratios are paired by image, with 95 % bootstrap intervals over images; the ratio
of two ratios, of a network's and of the first one's, is drawn from both networks' images independently.
"""

import argparse
from pathlib import Path
from typing import Any

import measure
import numpy as np
import torch
from black_box import Bench
from safetensors.torch import load_file
from torch import nn

from brinell.core.user_files import import_file
from rlab.common import fight

SIDES = (2, 4, 8)
MOST = 500
PLAIN = ("resnet20", "captum_cnn", "cifar10_mobile", "cifar10_vit", "cifar10_mixer")
ROBUST = ("resnet2b", "cnn_wide_kw", "vit_pgd_2_3_16", "vit_ibp_3_3_8")
FAMILIES = measure.ROOT / "examples" / "models" / "families.py"
DRAWS = 4000


def open_bench(name: str, weights: Path, samples: int) -> Bench:
    """A network of the shared data, of examples/train_families.py, or of an ONNX file, with its images."""
    subject = measure.subject("resnet20" if name.startswith(("cifar10_", "vit_")) else name)
    if name.startswith("vit_"):
        module: nn.Module = import_file(FAMILIES).vit_onnx(str(measure.SHARED / "onnx" / f"{name}.onnx"))
    elif name.startswith("cifar10_"):
        module = getattr(import_file(FAMILIES), name)()
        module.load_state_dict(load_file(weights / f"{name}.safetensors"))
    else:
        module = subject.module()
    module = module.eval().requires_grad_(False)
    return Bench(subject, module, *subject.samples(samples, module))


def bootstrap_means(values: np.ndarray[Any, Any], seed: int) -> np.ndarray[Any, Any]:
    """(draws, ...): means over images (n, ...) drawn again."""
    rng = np.random.default_rng(seed)
    return np.stack([values[rng.integers(len(values), size=len(values))].mean(0) for _ in range(DRAWS)])


def format_ratio(value: float, draws: np.ndarray[Any, Any]) -> str:
    """A figure with its interval."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robust", action="store_true")
    parser.add_argument("--networks", nargs="+", choices=(*PLAIN, *ROBUST), help="those alone; ratios are over the first's")
    parser.add_argument("--weights", type=Path, default=Path("runs/families"))
    parser.add_argument("--eps", type=float, default=1.0)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    torch.set_num_threads(1)
    words = (
        f"python benchmarks/rlab --study families{' --robust' * options.robust} --eps {options.eps:g} --samples {options.samples}"
    )
    words += f" --seeds {' '.join(map(str, options.seeds))}"
    words += f" --networks {' '.join(options.networks)}" if options.networks else ""
    columns = ["network"]
    columns += [column for side in SIDES for column in (f"{side} x {side}: fooled", "mean queries")]
    columns += [f"{side} over 2" for side in SIDES[1:]] + [f"that, over the first network's ({side})" for side in SIDES[1:]]
    title = f"Patch size and families: CIFAR-10, L2 {options.eps:g}, {options.samples} images, {MOST} queries"
    table = measure.Table(title, words, columns)
    first: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None
    for number, name in enumerate(options.networks or (ROBUST if options.robust else PLAIN)):
        bench = open_bench(name, options.weights, options.samples)
        cells: list[str] = [name]
        queries = []
        for side in SIDES:
            ends = [fight(bench, f"rlab?patch={side}", options.eps, MOST, seed) for seed in options.seeds]
            queries.append(torch.stack([outcome.queries.clamp_max(MOST) for outcome in ends]).mean(0).numpy())
            cells += [f"{np.mean([outcome.rate() for outcome in ends]):.2f}", f"{queries[-1].mean():.0f}"]
        means = np.stack(queries, 1)
        draws = bootstrap_means(means, number)
        ratio, ratios = means.mean(0)[1:] / means.mean(0)[0], draws[:, 1:] / draws[:, :1]
        cells += [format_ratio(ratio[index], ratios[:, index]) for index in range(len(SIDES) - 1)]
        if first is not None:
            cells += [
                format_ratio(ratio[index] / first[0][index], ratios[:, index] / first[1][:, index])
                for index in range(len(SIDES) - 1)
            ]
        else:
            cells += [""] * (len(SIDES) - 1)
            first = ratio, ratios
        table.add(*cells)
